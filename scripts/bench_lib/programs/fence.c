/* A client of PMI-1 and no MPI: puts as many bytes as its word says, waits for the fence, and gets what all have put.

   A value is what MPICH's is, an address in hexadecimal: digits by chance, of each rank others.
   Prints the seconds from the first put to the end of the fence.  A fence before that one makes all begin together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 1000 /* of the 1,024 that a value may have; with what is around it 1 KiB */

static FILE *from;
static int to;

static char *ask(const char *line)
{
    static char answer[8192];
    if (write(to, line, strlen(line)) < 0 || !fgets(answer, sizeof answer, from)) {
        fprintf(stderr, "no answer to %.60s\n", line);
        exit(3);
    }
    return answer;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fill(char *value, size_t bytes, unsigned rank)
{
    unsigned chance = rank * 2654435761u + 1;
    for (size_t at = 0; at < bytes; at++) {
        chance = chance * 1664525u + 1013904223u;
        value[at] = "0123456789ABCDEF"[chance >> 28];
    }
    value[bytes] = 0;
}

int main(int argc, char **argv)
{
    char line[4096], name[512], value[MOST + 1];
    size_t bytes = argc > 1 ? atoi(argv[1]) : MOST;
    const char *fd = getenv("PMI_FD"), *number = getenv("PMI_RANK"), *count = getenv("PMI_SIZE");
    if (!fd || !number || !count || bytes < 1 || bytes > MOST)
        return 2;
    to = atoi(fd);
    from = fdopen(to, "r");
    ask("cmd=init pmi_version=1 pmi_subversion=1\n");
    ask("cmd=get_maxes\n");
    char *found = strstr(ask("cmd=get_my_kvsname\n"), "kvsname=");
    if (!found || sscanf(found, "kvsname=%500s", name) != 1)
        return 4;
    fill(value, bytes, atoi(number));
    ask("cmd=barrier_in\n");
    double begin = now();
    snprintf(line, sizeof line, "cmd=put kvsname=%s key=k%s value=%s\n", name, number, value);
    ask(line);
    ask("cmd=barrier_in\n");
    double took = now() - begin;
    for (int other = 0; other < atoi(count); other++) {
        snprintf(line, sizeof line, "cmd=get kvsname=%s key=k%d\n", name, other);
        const char *got = strstr(ask(line), "value=");
        fill(value, bytes, other);
        if (!got || strncmp(got + 6, value, bytes) || strspn(got + 6, "0123456789ABCDEF") != bytes)
            return 5;
    }
    ask("cmd=finalize\n");
    printf("seconds %.9f\n", took);
    return 0;
}
