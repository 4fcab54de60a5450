// stdio on the file `data`: a refill moves the descriptor's position, so the program itself can say which reads the agent
// should hear of: "E position length".
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long sum;
static char big[200000];
static long before;

static void mix(const char *from, long n) {
    for (long i = 0; i < n; i++) sum = sum * 31 + (unsigned char)from[i];
}
static void start(FILE *f) { before = lseek(fileno(f), 0, SEEK_CUR); }
static void stop(FILE *f) {
    long after = lseek(fileno(f), 0, SEEK_CUR);
    if (after > before) printf("E %ld %ld\n", before, after - before);
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    FILE *f = fopen("data", "r");
    volatile size_t n = 3000;
    long got;
    if (!strcmp(what, "fread")) {
        do { start(f); got = fread(big, 1, n, f); stop(f); mix(big, got); } while (got > 0);
    } else if (!strcmp(what, "fread_large")) {
        do { start(f); got = fread(big, 1000, 50, f); stop(f); mix(big, got * 1000); } while (got > 0);
    } else if (!strcmp(what, "fread_unlocked")) {
        do { start(f); got = fread_unlocked(big, 1, 32768, f); stop(f); mix(big, got); } while (got > 0);
    } else if (!strcmp(what, "fread_setvbuf")) {
        setvbuf(f, big + 100000, _IOFBF, 65536);
        do { start(f); got = fread(big, 1, 10000, f); stop(f); mix(big, got); } while (got > 0);
    } else if (!strcmp(what, "fread_chk")) {
        char small[4000];
        do { start(f); got = fread(small, 1, n, f); stop(f); mix(small, got); } while (got > 0);
    } else if (!strcmp(what, "fgets")) {
        char *line;
        do { start(f); line = fgets(big, 1000, f); stop(f); if (line) mix(big, strlen(big)); } while (line);
    } else if (!strcmp(what, "fgets_chk")) {
        char small[300], *line;
        volatile int m = 290;
        do { start(f); line = fgets(small, m, f); stop(f); if (line) mix(small, strlen(small)); } while (line);
    } else if (!strcmp(what, "fgets_unlocked")) {
        char *line;
        do { start(f); line = fgets_unlocked(big, 50, f); stop(f); if (line) mix(big, strlen(big)); } while (line);
    } else if (!strcmp(what, "getline")) {
        char *line = NULL;
        size_t room = 0;
        do { start(f); got = getline(&line, &room, f); stop(f); if (got > 0) mix(line, got); } while (got > 0);
    } else if (!strcmp(what, "getdelim")) {
        char *line = NULL;
        size_t room = 0;
        do { start(f); got = getdelim(&line, &room, 'z', f); stop(f); if (got > 0) mix(line, got); } while (got > 0);
    } else if (!strcmp(what, "getc")) {
        do { start(f); got = getc(f); stop(f); if (got >= 0) sum = sum * 31 + got; } while (got >= 0);
    } else if (!strcmp(what, "fgetc")) {
        do { start(f); got = fgetc(f); stop(f); if (got >= 0) sum = sum * 31 + got; } while (got >= 0);
    } else if (!strcmp(what, "getc_unlocked")) {         // a macro: __uflow
        do { start(f); got = getc_unlocked(f); stop(f); if (got >= 0) sum = sum * 31 + got; } while (got >= 0);
    } else if (!strcmp(what, "ungetc")) {
        for (int i = 0; i < 30000; i++) {
            start(f); got = getc(f); stop(f);
            sum = sum * 31 + got;
            if (i % 3 == 0) { ungetc(got, f); got = getc(f); sum = sum * 31 + got; }
        }
    } else if (!strcmp(what, "fseek")) {
        for (int i = 0; i < 40; i++) {
            long at = (i * 77777L) % 1000000;
            printf("E %ld 4096\n", at & ~4095);           // one buffer, from its boundary, inside fseek
            fseek(f, at, SEEK_SET);
            mix(big, fread(big, 1, 8, f));
        }
    } else if (!strcmp(what, "mixed")) {                 // stdio and plain reads take turns
        start(f); mix(big, fread(big, 1, 100, f)); stop(f);
        printf("E 4096 50\n"); mix(big, read(fileno(f), big, 50));
        printf("E 4146 50\n"); mix(big, read(fileno(f), big, 50));
        fseek(f, 0, SEEK_SET);
        start(f); mix(big, fread(big, 1, 100, f)); stop(f);
        FILE *g = fdopen(dup(fileno(f)), "r");
        printf("E 4096 4096\n"); mix(big, fread(big, 1, 100, g));
        fclose(g);
        f = freopen("data", "r", f);
        start(f); mix(big, fread(big, 1, 100, f)); stop(f);
    } else if (!strcmp(what, "pipe")) {
        FILE *p = popen("cat data; sleep 0.01; cat data", "r");
        while ((got = fread(big, 1, 1000, p)) > 0) mix(big, got);
        printf("%d\n", pclose(p));
    } else if (!strcmp(what, "memory")) {
        FILE *m = fmemopen("a line\nanother\n", 15, "r");
        while (fgets(big, 100, m)) mix(big, strlen(big));
        printf("%d\n", fclose(m));
    }
    printf("%lu %d\n", sum, feof(f));
    printf("%d\n", fclose(f));
    return 0;
}
