/* Holds a process that is started as `spillgate worker` for two seconds before it begins: its device takes so long to start. */
#include <string.h>
#include <time.h>

__attribute__((constructor)) static void hold(int arguments, char **argument) {
    struct timespec span = {2, 0};
    if (arguments > 1 && strcmp(argument[1], "worker") == 0) {
        nanosleep(&span, 0);
    }
}
