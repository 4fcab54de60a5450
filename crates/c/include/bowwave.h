/* bowwave.h: what to read next, and why, for programs that keep a cache of their own.
 *
 * Tell the brain of reads, waits and arrivals (bowwave_read, bowwave_waited, bowwave_arrived, ...); ask it with bowwave_poll what
 * to fetch until there is nothing. It does no I/O, has no clock and starts no thread: moments are nanoseconds of any
 * clock that does not go back, files, devices and actors are numbers of yours. One thread at a time for each brain.
 *
 * Functions that return int give 0 (or 0, 1 where they answer a question), or a negative BOWWAVE_... error. In a library built
 * with --profile embed no failure of the brain ends the process: it says BOWWAVE_BROKEN from then on.
 *
 * Written from crates/c/src by crates/c/tests/header.rs: change it there. */

#ifndef BOWWAVE_H
#define BOWWAVE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Done.
#define BOWWAVE_OK 0

// A pointer that must point somewhere was null. Nothing was done.
#define BOWWAVE_NULL -1

// The brain met an error of its own, in this call or an earlier one. Go on without it, and free it.
#define BOWWAVE_BROKEN -2

// What a program says of its reads, as posix_fadvise has it.
enum bowwave_advice {
  // Nothing special.
  BOWWAVE_ADVICE_NORMAL = 0,
  // In order.
  BOWWAVE_ADVICE_SEQUENTIAL = 1,
  // In no order: fetch nothing ahead.
  BOWWAVE_ADVICE_RANDOM = 2,
  // These pages soon: fetch them.
  BOWWAVE_ADVICE_WILL_NEED = 3,
  // Not these pages: forget them.
  BOWWAVE_ADVICE_DONT_NEED = 4,
};

// A brain: what it knows of files, their readers, one memory and the devices. For one thread at a time.
struct bowwave;

// What is fixed for a brain's life. Everything else is measured. Begin with `bowwave_config_default`.
struct bowwave_config {
  // Bytes that pages fetched ahead may occupy. Default 1 GiB.
  uint64_t memory;
  // Your cache lets pages that were read go before those that a reader still comes to (`bowwave_awaits`): seven eighths of
  // memory are shared out to readers then, not a half. 0 is no, anything else yes; default 0, as no kernel does.
  uint8_t read_goes_first;
  // What is read without a word you tell (`bowwave_used`) at most so late, in nanoseconds: a reader with pages ahead of him is not
  // taken to have gone for silence as long as that, unless he was heard reading elsewhere. Default 0: as it is read.
  uint64_t told_within_ns;
  // Misses, marks and arrivals you tell at most so late, in nanoseconds: what a device carries until then must be out ahead of its
  // readers. Default 20 ms, as from a thread that others keep from the processors; 0 where it is told as it happens.
  uint64_t seen_within_ns;
  // Largest request that can be sent at once, in pages of 4096 bytes, at least 1. Default 32.
  uint64_t request_max;
  // Pages that a reader's own read brings at once, however large it is. Default 32.
  uint64_t reader_max;
  // Pages fetched ahead in vain that are tolerated for each hundred used. Default 15.
  uint32_t waste_percent;
  // Whether that is absolute, whatever it would have saved: 0 is no, anything else yes. Default 0.
  uint8_t waste_absolute;
};

// Pages `[start, start + count)` of a file; a page is 4096 bytes. What lies past the file's end is left out.
struct bowwave_extent {
  // First page, counted from 0.
  uint64_t start;
  // How many.
  uint64_t count;
};

// Something to fetch: none of its pages is present or under way as far as the brain was told, but for those beside them
// that their reader is about to bring himself.
struct bowwave_fetch {
  // Names it in `bowwave_arrived`, `bowwave_skipped` or `bowwave_failed`; one of them must follow.
  uint64_t id;
  // Of which file.
  uint64_t file;
  // Which pages, at most `request_max`.
  struct bowwave_extent pages;
  // The rule that led to it, `why_len` bytes without a zero behind them, valid for ever.
  const char *why;
  // Bytes of `why`.
  size_t why_len;
  // Whether somebody waits for it already.
  bool demand;
};

// Pages of a file that were given up.
struct bowwave_gone {
  // Of which file.
  uint64_t file;
  // Which pages.
  struct bowwave_extent pages;
};

// What came of it, since the brain was made.
struct bowwave_counters {
  // Reads told.
  uint64_t reads;
  // Reads that waited.
  uint64_t stalls;
  // Time that reads waited, in ns.
  uint64_t stalled_ns;
  // Different pages read.
  uint64_t pages_used;
  // Pages fetched ahead.
  uint64_t pages_ahead;
  // Of those, pages read later.
  uint64_t pages_useful;
  // Of those, pages whose reader came while they were under way.
  uint64_t pages_late;
  // Windows decided.
  uint64_t windows;
  // Windows that lost a page before its read.
  uint64_t windows_thrashed;
  // Streams of two reads or more that were found.
  uint64_t streams;
  // Fetches that failed.
  uint64_t fetches_failed;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What a brain is given where nothing is known of the machine.
struct bowwave_config bowwave_config_default(void);

// A brain that knows nothing yet; `config` null means the default. Null where it cannot be made: a `request_max` of 0.
struct bowwave *bowwave_new(const struct bowwave_config *config);

// Ends a brain's life. Null is no error.
void bowwave_free(struct bowwave *brain);

// A file appears, `size` bytes long. Files with the same `device` share what is learnt of it. Again: it has that size now.
int bowwave_open(struct bowwave *brain,
                 uint64_t now_ns,
                 uint64_t file,
                 uint64_t device,
                 uint64_t size);

// A file is read no more.
int bowwave_close(struct bowwave *brain, uint64_t now_ns, uint64_t file);

// These pages are about to be read, by `actor`: a thread, say. Told before every read that misses a page or meets one that
// is not quiet (`bowwave_leaf`).
int bowwave_read(struct bowwave *brain,
                 uint64_t now_ns,
                 uint64_t file,
                 struct bowwave_extent pages,
                 uint32_t actor);

// Where the read that `actor` makes next lies, to the byte: `bytes` of its file, from byte `from` on. Told just before its `bowwave_read`,
// where you know it; with another input between the two it counts for nothing. Records that lie 2,102,395 bytes apart do not lie a whole
// number of pages apart: told so, each from the fourth on is fetched before it is read, in the two pages that it needs. Of a read that is not
// told so, or is whole pages, no more is known than that it begins somewhere in its first page.
int bowwave_exactly(struct bowwave *brain,
                    uint32_t actor,
                    uint64_t from,
                    uint64_t bytes);

// A read has taken `took_ns`. Told after its `bowwave_read`, or alone where its pages were quiet and yet it was slow.
int bowwave_waited(struct bowwave *brain,
                   uint64_t now_ns,
                   uint64_t file,
                   struct bowwave_extent pages,
                   uint32_t actor,
                   uint64_t took_ns);

// These pages were read some time ago, quietly. Best told just before the `bowwave_read` of a page behind them.
int bowwave_used(struct bowwave *brain, uint64_t now_ns, uint64_t file, struct bowwave_extent pages);

// Whether each page read of a file is told, by `bowwave_read` or `bowwave_used`, but for those that come with one at once, 31 at
// most: so it is where pages are mapped. What is passed untold is skipped then. Until told otherwise (`all` 0) it is not so.
int bowwave_told(struct bowwave *brain,
                 uint64_t now_ns,
                 uint64_t file,
                 int all);

// A fetch has arrived. An id that is not under way is no error, here and below.
int bowwave_arrived(struct bowwave *brain, uint64_t now_ns, uint64_t fetch);

// A fetch found its pages there, or brought by others: nothing was sent, and its time says nothing.
int bowwave_skipped(struct bowwave *brain, uint64_t now_ns, uint64_t fetch);

// A fetch has failed, or was never sent.
int bowwave_failed(struct bowwave *brain, uint64_t now_ns, uint64_t fetch);

// These pages are in the cache: a reader brought them, or they were there before.
int bowwave_present(struct bowwave *brain, uint64_t now_ns, uint64_t file, struct bowwave_extent pages);

// These pages have left the cache.
int bowwave_dropped(struct bowwave *brain, uint64_t now_ns, uint64_t file, struct bowwave_extent pages);

// The program gave advice, one of `BOWWAVE_ADVICE_...`; another number is none. The first three are for the whole file.
int bowwave_advised(struct bowwave *brain, uint64_t now_ns, uint64_t file, struct bowwave_extent pages, int advice);

// What can be sent to this device at once, where that is not what the configuration says: told before its first file, or when
// it changes. Pages of a request, of which 0 is taken as 1, and pages that a reader's own read brings.
int bowwave_device(struct bowwave *brain,
                   uint64_t now_ns,
                   uint64_t device,
                   uint64_t request_max,
                   uint64_t reader_max);

// Pages fetched ahead may occupy so many bytes from now on. What was learnt of memory is kept while it changes by no more than a
// sixteenth.
int bowwave_memory(struct bowwave *brain,
                   uint64_t now_ns,
                   uint64_t bytes);

// What is to be fetched now: 1 and `fetch` is filled, or 0 where there is nothing. Call until 0 after each input.
int bowwave_poll(struct bowwave *brain, uint64_t now_ns, struct bowwave_fetch *fetch);

// Pages that were fetched ahead and turned out to be more than memory has room for: 1 and `gone` is filled, or 0 where there are no
// more. To the brain they are absent already. A cache that lets them go at once keeps what its readers come to next; it may as well
// leave them. Call until 0 after `bowwave_dropped` and `bowwave_waited`, or never: 64 runs are kept at most. Nothing is given up
// with `read_goes_first`.
int bowwave_given_up(struct bowwave *brain,
                     struct bowwave_gone *gone);

// Whether a page is present or under way as far as the brain was told: 1 or 0.
int bowwave_resident(struct bowwave *brain, uint64_t file, uint64_t page);

// Whether a page was fetched ahead of a reader on his way up, or down, who still comes to it: 1 or 0. A cache that asks before it lets a
// page go, and keeps what is awaited as if it had come anew, may say `read_goes_first`. Ask with a bound, as 2048 at one go:
// where all is awaited something must go none the less.
int bowwave_awaits(struct bowwave *brain,
                   uint64_t file,
                   uint64_t page);

// One bit for each of the 64 pages from `leaf * 64` on: those whose read needs not be told, the lowest bit first.
int bowwave_leaf(struct bowwave *brain, uint64_t file, uint64_t leaf, uint64_t *quiet);

// Reads the counters.
int bowwave_counters_read(struct bowwave *brain, struct bowwave_counters *counters);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BOWWAVE_H */
