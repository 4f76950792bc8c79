/* A disk of which one call fails: preloaded into a process, it counts what the process and its children ask of
   watched folders, and lets the call of a given number fail, or kills the process there. Reading never fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ALLOCATES = 1, PERMITTED = 2 }; /* what a full disk refuses; what permissions can refuse */

static char watched[4][PATH_MAX];
static int folders;
static long failing;   /* the number of the call that fails; 0: none */
static int failure;    /* an errno; 0: a kill */
static int report = -1;
static atomic_long *calls; /* shared with children */

#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* Fail call number `number` with `error`, or with a kill if it is 0, in folders that a colon separates; each
   call is written to the file `log`. */
void failing_disk(const char *prefixes, long number, int error, const char *log) {
  char *copy = strdup(prefixes), *rest = copy, *one;
  while (folders < 4 && (one = strsep(&rest, ":")))
    if (!realpath(one, watched[folders++])) folders--;
  free(copy);
  calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  report = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  failure = error;
  failing = number;
}

static int is_watched(const char *path) {
  for (int i = 0; i < folders; i++) {
    size_t length = strlen(watched[i]);
    if (!strncmp(path, watched[i], length) && (path[length] == '/' || !path[length])) return 1;
  }
  return 0;
}

static void full_path(int folder, const char *path, char *full) {
  char link[64], base[PATH_MAX] = "";
  if (path[0] == '/') { snprintf(full, PATH_MAX, "%s", path); return; }
  if (folder == AT_FDCWD) { if (!getcwd(base, sizeof base)) base[0] = 0; }
  else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, base, sizeof base - 1);
    base[length > 0 ? length : 0] = 0;
  }
  snprintf(full, PATH_MAX, "%.2000s%s%.2000s", base, path[0] ? "/" : "", path);
}

/* 0 if the call goes on; else errno is set. `torn` is 1 where half of a write arrives. */
static int fails(const char *call, const char *full, int kinds, int *torn) {
  if (report < 0 || !is_watched(full)) return 0;
  long number = atomic_fetch_add(calls, 1) + 1;
  /* A full disk stays full; other failures are of one call. */
  int hit = number == failing || (failing && number > failing && failure == ENOSPC);
  if (failure == ENOSPC && !(kinds & ALLOCATES)) hit = 0;
  if (failure == EACCES && !(kinds & PERMITTED)) hit = 0;
  char line[PATH_MAX + 64];
  int length = snprintf(line, sizeof line, "%ld %s %s%s\n", number, call, full, hit ? " FAILED" : "");
  { REAL(ssize_t, write, int, const void *, size_t); if (real(report, line, length) < 0) { } }
  if (!hit) return 0;
  if (torn && number == failing) { *torn = 1; return 0; }
  if (!failure) kill(getpid(), SIGKILL);
  errno = failure;
  return 1;
}

static int by_name(const char *call, int folder, const char *path, int kinds) {
  if (report < 0) return 0;
  char full[PATH_MAX];
  full_path(folder, path, full);
  return fails(call, full, kinds, NULL);
}

static int by_number(const char *call, int file, int kinds, int *torn) {
  if (report < 0 || file == report) return 0;
  struct stat facts;
  char full[PATH_MAX];
  if (fstat(file, &facts) || !(S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode))) return 0;
  full_path(file, "", full);
  return fails(call, full, kinds, torn);
}

static int writes(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0; }

static int new_file(int folder, const char *path, int flags) {
  int creates = (flags & O_CREAT) && faccessat(folder, path, F_OK, 0);
  errno = 0;
  return creates ? ALLOCATES | PERMITTED : PERMITTED;
}

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    REAL(int, name, const char *, int, ...); \
    va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
    if (report >= 0 && writes(flags) && by_name("open", AT_FDCWD, path, new_file(AT_FDCWD, path, flags))) return -1; \
    return real(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
  int name(int folder, const char *path, int flags, ...) { \
    REAL(int, name, int, const char *, int, ...); \
    va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
    if (report >= 0 && writes(flags) && by_name("open", folder, path, new_file(folder, path, flags))) return -1; \
    return real(folder, path, flags, mode); \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
  FILE *name(const char *path, const char *mode) { \
    REAL(FILE *, name, const char *, const char *); \
    if (report >= 0 && strpbrk(mode, "wa+") && \
        by_name("open", AT_FDCWD, path, new_file(AT_FDCWD, path, O_CREAT))) return NULL; \
    return real(path, mode); \
  }
FOPEN(fopen)
FOPEN(fopen64)

/* Of the write that meets a full disk or a kill, half arrives: the system returns what was written, and the next
   call fails. */
#define TORN(call, half) \
  int torn = 0; \
  if (by_number(call, file, ALLOCATES, &torn)) return -1; \
  if (torn) { \
    ssize_t done = failure == EIO ? -1 : half; \
    if (!failure) kill(getpid(), SIGKILL); \
    if (done > 0) return done; \
    errno = failure; \
    return -1; \
  }

ssize_t write(int file, const void *bytes, size_t size) {
  REAL(ssize_t, write, int, const void *, size_t);
  TORN("write", real(file, bytes, size / 2))
  return real(file, bytes, size);
}

#define PWRITE(name) \
  ssize_t name(int file, const void *bytes, size_t size, off_t at) { \
    REAL(ssize_t, name, int, const void *, size_t, off_t); \
    TORN("write", real(file, bytes, size / 2, at)) \
    return real(file, bytes, size, at); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t writev(int file, const struct iovec *parts, int count) {
  REAL(ssize_t, writev, int, const struct iovec *, int);
  TORN("write", real(file, parts, count / 2))
  return real(file, parts, count);
}

#define BY_NUMBER(type, name, call, kinds, parameters, arguments) \
  type name parameters { \
    static type (*real) parameters; \
    if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
    if (by_number(call, file, kinds, NULL)) return -1; \
    return real arguments; \
  }
BY_NUMBER(int, fsync, "fsync", ALLOCATES, (int file), (file))
BY_NUMBER(int, fdatasync, "fsync", ALLOCATES, (int file), (file))
BY_NUMBER(int, ftruncate, "truncate", ALLOCATES, (int file, off_t size), (file, size))
BY_NUMBER(int, ftruncate64, "truncate", ALLOCATES, (int file, off_t size), (file, size))
BY_NUMBER(int, fallocate, "allocate", ALLOCATES, (int file, int mode, off_t at, off_t size), (file, mode, at, size))
BY_NUMBER(int, flock, "lock", 0, (int file, int operation), (file, operation))
BY_NUMBER(ssize_t, sendfile, "write", ALLOCATES, (int file, int from, off_t *at, size_t size), (file, from, at, size))
BY_NUMBER(ssize_t, sendfile64, "write", ALLOCATES, (int file, int from, off_t *at, size_t size), (file, from, at, size))

/* posix_fallocate returns its error. */
int posix_fallocate(int file, off_t at, off_t size) {
  REAL(int, posix_fallocate, int, off_t, off_t);
  return by_number("allocate", file, ALLOCATES, NULL) ? errno : real(file, at, size);
}

#define BY_NAME(name, call, kinds, folder, parameters, arguments) \
  int name parameters { \
    static int (*real) parameters; \
    if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name); \
    if (by_name(call, folder, path, kinds)) return -1; \
    return real arguments; \
  }
BY_NAME(mkdir, "mkdir", ALLOCATES | PERMITTED, AT_FDCWD, (const char *path, mode_t mode), (path, mode))
BY_NAME(mkdirat, "mkdir", ALLOCATES | PERMITTED, at, (int at, const char *path, mode_t mode), (at, path, mode))
BY_NAME(unlink, "unlink", PERMITTED, AT_FDCWD, (const char *path), (path))
BY_NAME(unlinkat, "unlink", PERMITTED, at, (int at, const char *path, int flags), (at, path, flags))
BY_NAME(rmdir, "rmdir", PERMITTED, AT_FDCWD, (const char *path), (path))
BY_NAME(rename, "rename", ALLOCATES | PERMITTED, AT_FDCWD, (const char *from, const char *path), (from, path))
BY_NAME(renameat, "rename", ALLOCATES | PERMITTED, to, (int at, const char *from, int to, const char *path), (at, from, to, path))
BY_NAME(link, "link", ALLOCATES | PERMITTED, AT_FDCWD, (const char *from, const char *path), (from, path))
BY_NAME(symlink, "link", ALLOCATES | PERMITTED, AT_FDCWD, (const char *target, const char *path), (target, path))
BY_NAME(truncate, "truncate", PERMITTED, AT_FDCWD, (const char *path, off_t size), (path, size))
BY_NAME(truncate64, "truncate", PERMITTED, AT_FDCWD, (const char *path, off_t size), (path, size))
