// "name", "uid", "name:group", "uid:gid" against the sandbox's own passwd and group. Both files
// belong to the workload: regular files only, never through a link out of the root tree or into
// proc, never blocking, the first 256 KiB.

#include "isolate/init/parse.h"
#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr uint32_t kMaxId = 65535;

// Bytes now in g_scratch; 0 when the file is missing or not to be trusted.
size_t load(const char* path) {
  struct open_how how = {};
  how.flags = (uint64_t)(O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  how.resolve = RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV | RESOLVE_IN_ROOT;
  long root = openat(kAtFdcwd, "/", O_PATH | O_DIRECTORY);
  long fd = root < 0 ? root : sys(__NR_openat2, root, path, &how, sizeof how);
  if (root >= 0) {
    close((int)root);
  }
  if (fd < 0) {
    return 0;
  }
  struct stat st = {};
  size_t size = 0;
  if (sys(__NR_fstat, fd, &st) >= 0 && (st.st_mode & kModeType) == kModeRegular) {
    while (size < sizeof g_scratch) {
      long n = read((int)fd, g_scratch + size, sizeof g_scratch - size);
      if (n <= 0) {
        break;
      }
      size += (size_t)n;
    }
  }
  close((int)fd);
  return size;
}

void split(size_t size, size_t& at, Field (&fields)[kFields]) {
  split_line(reinterpret_cast<const char*>(g_scratch), size, at, fields);
}

bool same(const Field& field, const char* text, size_t size) {
  return field.size == size && memcmp(field.text, text, size) == 0;
}

template <size_t N>
void copy(char (&to)[N], const Field& field) {
  size_t n = field.size < N ? field.size : 0;  // too long to be kept whole: not at all
  memcpy(to, field.text, n);
  to[n] = 0;
}

// The passwd line of a name, or of a uid when `name` is null.
bool find_user(const char* name, size_t name_size, uint32_t uid, User& user) {
  size_t size = load("etc/passwd");
  Field fields[kFields];
  for (size_t at = 0; at < size;) {
    split(size, at, fields);
    uint32_t line_uid = 0;
    uint32_t line_gid = 0;
    if (fields[0].size == 0 || !parse_u32(fields[2].text, fields[2].size, line_uid) ||
        !parse_u32(fields[3].text, fields[3].size, line_gid)) {
      continue;
    }
    if (name != nullptr ? !same(fields[0], name, name_size) : line_uid != uid) {
      continue;
    }
    user.uid = line_uid;
    user.gid = line_gid;
    copy(user.name, fields[0]);
    copy(user.home, fields[5]);
    copy(user.shell, fields[6]);
    return true;
  }
  return false;
}

bool find_group(const char* name, size_t name_size, uint32_t& gid) {
  size_t size = load("etc/group");
  Field fields[kFields];
  for (size_t at = 0; at < size;) {
    split(size, at, fields);
    if (same(fields[0], name, name_size)) {
      return parse_u32(fields[2].text, fields[2].size, gid);
    }
  }
  return false;
}

// initgroups(3): every group that names the user, and the primary one.
void supplementary(User& user) {
  constexpr uint32_t kMost = sizeof user.groups / sizeof user.groups[0];
  user.groups[user.group_count++] = user.gid;
  if (user.name[0] == 0) {
    return;
  }
  size_t name_size = length(user.name);
  size_t size = load("etc/group");
  Field fields[kFields];
  for (size_t at = 0; at < size && user.group_count < kMost;) {
    split(size, at, fields);
    uint32_t gid = 0;
    if (lists_name(fields[3], user.name, name_size) &&
        parse_u32(fields[2].text, fields[2].size, gid) && gid <= kMaxId && gid != user.gid) {
      user.groups[user.group_count++] = gid;
    }
  }
}

// A file as it was when it was read: the same if all of this is the same, and the change is so long
// ago that another one would show in the times (their grain is that of the kernel's tick).
struct FileState {
  uint64_t dev, ino, size, mtime, mtime_nsec, ctime, ctime_nsec;
};

FileState state_of(const char* path) {
  struct stat st = {};
  if (sys(__NR_newfstatat, kAtFdcwd, path, &st, 0) < 0) {
    return {};
  }
  return {(uint64_t)st.st_dev,       (uint64_t)st.st_ino,        (uint64_t)st.st_size,
          (uint64_t)st.st_mtime,     (uint64_t)st.st_mtime_nsec, (uint64_t)st.st_ctime,
          (uint64_t)st.st_ctime_nsec};
}

bool is_old(const FileState& state) {
  constexpr uint64_t kGrain = 100 * kMs;
  return state.ctime * 1000 * kMs + state.ctime_nsec + kGrain < clock_ns(CLOCK_REALTIME);
}

// The last answer, and what it was read from.
struct Cache {
  bool valid;
  char text[64];
  FileState passwd;
  FileState group;
  User user;
};
Cache cache;

bool is_directory(const char* path) {
  struct stat st = {};
  return path[0] == '/' && sys(__NR_newfstatat, kAtFdcwd, path, &st, 0) >= 0 &&
         (st.st_mode & kModeType) == kModeDir;
}

int look_up(const char* text, User& user) {
  memset(&user, 0, sizeof user);
  size_t user_size = 0;
  while (text[user_size] != 0 && text[user_size] != ':') {
    ++user_size;
  }
  const char* group = text[user_size] == ':' ? text + user_size + 1 : nullptr;
  uint32_t uid = 0;
  if (user_size == 0 && group != nullptr) {
    return EINVAL;
  }
  if (user_size == 0 || parse_u32(text, user_size, uid)) {
    if (uid > kMaxId) {
      return EINVAL;
    }
    if (!find_user(nullptr, 0, uid, user)) {
      user.uid = uid;
      user.gid = uid;  // a group of its own number: not root's
    }
  } else if (!find_user(text, user_size, 0, user)) {
    return ENOENT;
  }
  if (group != nullptr) {
    size_t group_size = length(group);
    if (group_size == 0) {
      return EINVAL;
    }
    if (!parse_u32(group, group_size, user.gid) && !find_group(group, group_size, user.gid)) {
      return ENOENT;
    }
  }
  if (user.uid > kMaxId || user.gid > kMaxId) {
    return EINVAL;
  }
  if (group != nullptr) {
    user.groups[user.group_count++] = user.gid;
  } else {
    supplementary(user);
  }
  return 0;
}

}  // namespace

int resolve_user(const char* text, User& user) {
  FileState passwd = state_of("/etc/passwd");
  FileState group = state_of("/etc/group");
  if (cache.valid && equal(cache.text, text) &&
      memcmp(&cache.passwd, &passwd, sizeof passwd) == 0 &&
      memcmp(&cache.group, &group, sizeof group) == 0) {
    user = cache.user;
  } else {
    int error = look_up(text, user);
    if (error != 0) {
      return error;
    }
    size_t size = length(text) + 1;
    cache.valid = size <= sizeof cache.text && is_old(passwd) && is_old(group);
    if (cache.valid) {
      memcpy(cache.text, text, size);
      cache.passwd = passwd;
      cache.group = group;
      cache.user = user;
    }
  }
  if (!is_directory(user.home)) {
    Text(user.home, sizeof user.home).add("/tmp");
  }
  return 0;
}

}  // namespace talon::init
