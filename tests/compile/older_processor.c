/* Makes a process believe that its processor ends at AVX2: no AVX-512, VNNI, BF16 or AMX.

   Loaded by LD_PRELOAD. Linux can make the instruction CPUID fault (arch_prctl ARCH_SET_CPUID, where
   /proc/cpuinfo has the flag cpuid_fault); the handler below answers in its stead, with the bits of
   newer instructions taken away. Libraries that ask the processor then run the code that they would
   run on the older one, at full speed. The setting is per thread, inherited by new ones, and ends
   with exec, where the preloaded library sets it again. */

#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define BIT(n) (1u << (n))

static struct sigaction theirs; /* what the program wants to do about SIGSEGV */
static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);

static void take_away(uint32_t leaf, uint32_t sub, uint32_t *a, uint32_t *b, uint32_t *c,
                      uint32_t *d)
{
    if (leaf == 7 && sub == 0) {
        /* AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL */
        *b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        /* AVX-512 VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ */
        *c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        /* AVX-512 4VNNIW, 4FMAPS, VP2INTERSECT, FP16; AMX BF16, TILE, INT8 */
        *d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    } else if (leaf == 7 && sub == 1) {
        *a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23)); /* AVX-VNNI, AVX-512 BF16, AMX FP16, IFMA */
        *d &= ~(BIT(4) | BIT(5) | BIT(10) | BIT(19)); /* AVX-VNNI INT8, NE-CONVERT, INT16; AVX10 */
    } else if (leaf == 0x1d || leaf == 0x1e) {
        *a = *b = *c = *d = 0; /* AMX tiles */
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *at = (const uint8_t *)registers[REG_RIP];
    if (info->si_code == SI_KERNEL && at[0] == 0x0f && at[1] == 0xa2) {
        uint32_t leaf = registers[REG_RAX], sub = registers[REG_RCX], a, b, c, d;
        syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
        __cpuid_count(leaf, sub, a, b, c, d);
        syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
        take_away(leaf, sub, &a, &b, &c, &d);
        registers[REG_RAX] = a;
        registers[REG_RBX] = b;
        registers[REG_RCX] = c;
        registers[REG_RDX] = d;
        registers[REG_RIP] += 2;
        return;
    }
    if (theirs.sa_flags & SA_SIGINFO) {
        theirs.sa_sigaction(number, info, context);
    } else if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN) {
        theirs.sa_handler(number);
    } else { /* a fault of the program's own, or a signal that was sent: it ends as it would */
        struct sigaction ending = {.sa_handler = SIG_DFL};
        real_sigaction(number, &ending, 0);
        raise(number);
    }
}

/* Python's faulthandler, for one, wants SIGSEGV for itself. */
int sigaction(int number, const struct sigaction *wanted, struct sigaction *before)
{
    if (!real_sigaction)
        real_sigaction = dlsym(RTLD_NEXT, "sigaction");
    if (number != SIGSEGV)
        return real_sigaction(number, wanted, before);
    if (before)
        *before = theirs;
    if (wanted)
        theirs = *wanted;
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    if (!real_sigaction)
        real_sigaction = dlsym(RTLD_NEXT, "sigaction");
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    ours.sa_sigaction = on_fault;
    real_sigaction(SIGSEGV, &ours, 0);
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
}
