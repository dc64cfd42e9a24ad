"""What support teams answer: the canned replies that an autocomplete model proposes.

Each reply has the words that call for it and the pieces that it is written in. Replies are the same
for all customers but for what is theirs: the name, the days, the hours. Knows nothing of models.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from customers import Customer

_TOPICS = (
    ("where order parcel package delivery shipped tracking arrived late",
     "Thank you for writing to {name}.|Your order is on its way|"
     "and should be with you in {days} days."),
    ("refund money back charged twice paid payment",
     "I am sorry about that.|We have refunded the amount;|your bank shows it in {days} days."),
    ("return exchange size wrong item send",
     "You can send it back within {weeks} weeks.|The label is in your {name} account|"
     "under Orders."),
    ("password login account locked sign access",
     "I have sent you a link|to set a new password for {name}.|It is valid for one hour."),
    ("broken damaged defect stopped working warranty repair",
     "I am sorry that it arrived like this.|Your warranty covers it:|"
     "a new one leaves our {city} warehouse today."),
    ("cancel subscription membership stop end",
     "Your subscription is cancelled|and ends with this month.|You are welcome back any time."),
    ("address change moved house street",
     "I have changed your address.|Orders that have left our warehouse|still go to the old one."),
    ("invoice receipt bill tax number",
     "Your invoice is attached.|You find all of them|in your {name} account under Billing."),
    ("discount coupon code price voucher offer",
     "The code {code} works until Sunday.|Enter it on the last page|before you pay."),
    ("open hours call phone human talk speak",
     "Our team in {city} answers the phone|from {open} to {close} o'clock,|Monday to Friday."),
    ("stock available sold when again size colour",
     "It will be back in {days} days.|Shall I keep one for you?"),
    ("thanks thank great perfect bye",
     "You are welcome!|Have a nice day,|your {name} team."),
)  # fmt: skip
_CITIES = ("Austin", "Boston", "Dublin", "Leeds", "Lyon", "Oslo", "Porto", "Pune", "Osaka", "Turin")


@dataclass(frozen=True, slots=True)
class Reply:
    """One canned reply."""

    words: tuple[str, ...]  #: that call for it, in lower case
    pieces: tuple[str, ...]


def replies(customer: Customer, seed: int) -> list[Reply]:
    """One seed gives each customer the same replies again."""
    rng = random.Random(f"replies {seed} {customer.key}")
    opens = rng.randint(7, 10)
    own = {
        "name": customer.name,
        "days": str(rng.randint(2, 9)),
        "weeks": str(rng.randint(2, 8)),
        "city": rng.choice(_CITIES),
        "code": f"{customer.name.split()[0].upper()}{rng.randint(5, 30)}",
        "open": str(opens),
        "close": str(opens + 9),
    }
    return [
        Reply(tuple(words.split()), tuple(piece.format(**own) for piece in text.split("|")))
        for words, text in _TOPICS
    ]
