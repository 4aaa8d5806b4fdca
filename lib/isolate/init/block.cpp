// The memory that an exec's child stands on until its execve: its stack, its context, argv with
// one slot before it, envp. Mapped per exec, because init has no allocator and the child shares
// init's memory; strings stay in the request's memfd, those that came in the frame are copied here.

#include "isolate/init/parse.h"
#include "isolate/init/state.h"

namespace talon::init {
namespace {

constexpr size_t kSpareBlock = 64 * 1024;  // one block of this size is kept for the next exec
const char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

void* spare_block = nullptr;

struct Environment {
  const char* path = nullptr;
  bool home = false;
  bool user = false;
  bool logname = false;
  bool shell = false;
};

Environment look_at(const char** envp) {
  Environment env;
  for (; *envp != nullptr; ++envp) {
    if (starts_with(*envp, "PATH=") && env.path == nullptr) {
      env.path = *envp + 5;
    }
    env.home = env.home || starts_with(*envp, "HOME=");
    env.user = env.user || starts_with(*envp, "USER=");
    env.logname = env.logname || starts_with(*envp, "LOGNAME=");
    env.shell = env.shell || starts_with(*envp, "SHELL=");
  }
  return env;
}

// HOME, USER, LOGNAME and SHELL where the request has none. `room` holds the texts.
void complete_environment(const char** end, char* room, size_t size, const Environment& env,
                          const User& user) {
  auto add = [&](bool have, const char* name, const char* value) {
    if (have || value[0] == 0) {
      return;
    }
    Text text(room, size);
    text.add(name).add(value);
    *end++ = room;
    room += text.size() + 1;
    size -= text.size() + 1;
  };
  add(env.home, "HOME=", user.home);
  add(env.user, "USER=", user.name);
  add(env.logname, "LOGNAME=", user.name);
  add(env.shell, "SHELL=", user.shell);
  *end = nullptr;
}

int make_block(Exec& e, size_t extra) {
  size_t size = (kChildStack + sizeof(ChildContext) + extra + 4095) & ~(size_t)4095;
  if (size <= kSpareBlock) {
    size = kSpareBlock;
    e.block = spare_block;
    spare_block = nullptr;
  }
  if (e.block == nullptr) {
    void* p = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (is_err(p)) {
      return ENOMEM;
    }
    e.block = p;
  }
  e.block_size = size;
  return 0;
}

}  // namespace

void prepare_block() {
  if (spare_block == nullptr) {
    void* p = map(kSpareBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (is_err(p)) {
      return;
    }
    // The end of the stack, the context and the strings; the rest only who needs it.
    memset(static_cast<unsigned char*>(p) + kChildStack - 2048, 0,
           2048 + sizeof(ChildContext) + 4096);
    spare_block = p;
  }
}

ChildContext& context_of(const Exec& e) {
  return *reinterpret_cast<ChildContext*>(static_cast<unsigned char*>(e.block) + kChildStack);
}

// The request's memfd is sealed against shrinking and writing: else a reader could meet SIGBUS or
// text that changes after it was checked.
int map_request(Exec& e) {
  long seals = sys(__NR_fcntl, e.mem_fd, kFGetSeals);
  struct stat st = {};
  if (seals < 0 || (seals & (kSealShrink | kSealWrite)) != (kSealShrink | kSealWrite) ||
      sys(__NR_fstat, e.mem_fd, &st) < 0 || st.st_size <= 0) {
    return EINVAL;
  }
  void* p = map((size_t)st.st_size, PROT_READ, MAP_PRIVATE, e.mem_fd);
  if (is_err(p)) {
    return ENOMEM;
  }
  e.mem = static_cast<const unsigned char*>(p);
  e.mem_size = (size_t)st.st_size;
  return 0;
}

int fill_block(Exec& e, const wire::Exec& request, const User& user) {
  constexpr size_t kRoom = 1024;
  if (request.argc == 0 || request.argc > e.mem_size || request.envc > e.mem_size) {
    return EINVAL;
  }
  size_t pointers = (size_t)request.argc + 2 + request.envc + 5;
  int error = make_block(e, pointers * sizeof(char*) + kRoom + (e.mem_inline ? e.mem_size : 0));
  if (error != 0) {
    return error;
  }
  auto* base = static_cast<unsigned char*>(e.block);
  auto& child = *reinterpret_cast<ChildContext*>(base + kChildStack);
  child = {};
  const auto** slots = reinterpret_cast<const char**>(base + kChildStack + sizeof(ChildContext));
  child.argv = slots + 1;
  child.envp = slots + request.argc + 2;
  char* room = reinterpret_cast<char*>(slots + pointers);
  if (e.mem_inline) {
    memcpy(room + kRoom, e.mem, e.mem_size);
    e.mem = reinterpret_cast<unsigned char*>(room + kRoom);
  }
  StringTable strings(e.mem, e.mem_size);
  if (!strings.take(request.argv_off, request.argc, child.argv) ||
      !strings.take(request.env_off, request.envc, child.envp)) {
    return EINVAL;
  }
  child.cwd = strings.string_at(request.cwd_off);
  if (child.cwd == nullptr || (child.cwd[0] != 0 && child.cwd[0] != '/')) {
    return EINVAL;
  }
  child.default_cwd = child.cwd[0] == 0;
  if (child.default_cwd) {
    child.cwd = g.plan->default_cwd[0] != 0 ? g.plan->default_cwd : "/";
  }
  Environment env = look_at(child.envp);
  child.path = env.path != nullptr ? env.path : kDefaultPath;
  complete_environment(child.envp + request.envc, room, kRoom, env, user);
  child.file = child.argv[0];
  child.tty = e.tty;
  child.uid = user.uid;
  child.gid = user.gid;
  child.group_count = user.group_count;
  memcpy(child.groups, user.groups, sizeof child.groups);
  child.caps = user.uid == 0 ? g.workload_caps : 0;
  child.drop_caps = g.init_caps & ~g.workload_caps;
  child.nofile_soft = g.child_nofile_soft;
  child.nofile_hard = g.child_nofile_hard;
  return 0;
}

void free_block(Exec& e) {
  if (e.block != nullptr) {
    if (e.block_size == kSpareBlock && spare_block == nullptr) {
      spare_block = e.block;
    } else {
      unmap(e.block, e.block_size);
    }
    e.block = nullptr;
  }
  if (e.mem != nullptr && !e.mem_inline) {
    unmap(const_cast<unsigned char*>(e.mem), e.mem_size);
  }
  e.mem = nullptr;
}

}  // namespace talon::init
