"""What brings an older database to this version's tables. Files of before are never changed."""
