/* Makes the sleeps of a process three times as long: an emulated device of it is a third as fast. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec longer(const struct timespec *asked) {
    long long span = 3 * (asked->tv_sec * 1000000000LL + asked->tv_nsec);
    struct timespec times_three = {span / 1000000000LL, span % 1000000000LL};
    return times_three;
}

int nanosleep(const struct timespec *asked, struct timespec *left) {
    struct timespec span = longer(asked);
    return (int)syscall(SYS_nanosleep, &span, left);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *asked, struct timespec *left) {
    struct timespec span = flags == TIMER_ABSTIME ? *asked : longer(asked);
    return syscall(SYS_clock_nanosleep, clock, flags, &span, left) == 0 ? 0 : 4 /* EINTR */;
}
