// N6: System V segments, queues and semaphores, POSIX queues and the host name are the sandbox's
// own: a key, an id or a name of the host's or of a neighbour's is nothing there.

#include <fcntl.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/utsname.h>

#include "base/id.h"
#include "security/attack.h"

using namespace talon;
using namespace talon::testing;

namespace {

// One of each on the host.
struct Objects {
  Objects()
      : key(0x7a100000 + static_cast<key_t>(getpid() & 0xffff)),
        queue_name("/talon-" + random_hex(6)),
        shm(shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666)),
        msg(msgget(key, IPC_CREAT | IPC_EXCL | 0666)),
        sem(semget(key, 1, IPC_CREAT | IPC_EXCL | 0666)),
        queue(mq_open(queue_name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0666, nullptr)) {}
  ~Objects() {
    shmctl(shm, IPC_RMID, nullptr);
    msgctl(msg, IPC_RMID, nullptr);
    semctl(sem, 0, IPC_RMID);
    mq_close(queue);
    mq_unlink(queue_name.c_str());
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;
  key_t key;
  std::string queue_name;
  int shm;
  int msg;
  int sem;
  mqd_t queue;
};

}  // namespace

TEST_CASE("N6: keys, queues and the host name of the host are not the sandbox's") {
  TALON_NEED_SANDBOXES();
  const Objects host;
  REQUIRE((host.shm >= 0 && host.msg >= 0 && host.sem >= 0 && host.queue >= 0));
  const std::string key = std::to_string(host.key);
  utsname before{};
  uname(&before);
  from_every_side(
      [&](Attacker& a) {
        for (const char* kind : {"shm", "msg", "sem"}) {
          INFO(kind);
          CHECK(a.attempt({kind, key}) == "ENOENT");
        }
        CHECK(a.attempt({"shm-id", std::to_string(host.shm)}) == "EINVAL");
        CHECK(a.attempt({"mqueue", host.queue_name}) == "ENOENT");
        for (const char* list : {"shm", "msg", "sem"}) {
          const std::string text = a.run({"/bin/cat", std::string{"/proc/sysvipc/"} + list}).out;
          CHECK(std::ranges::count(text, '\n') == 1);  // the heading
        }
        CHECK(a.run({"/bin/hostname"}).out == "box-of-n6\n");
        CHECK(a.attempt({"sethostname"}) == "EPERM");
        CHECK(a.attempt({"setdomainname"}) == "EPERM");
        CHECK(a.run({"/bin/hostname"}).out == "box-of-n6\n");
      },
      {.spec = [](auto& spec) { spec.hostname = "box-of-n6"; }});
  utsname after{};
  uname(&after);
  CHECK(std::string{before.nodename} == after.nodename);
  // The control: this process is where they are.
  CHECK(shmget(host.key, 0, 0) == host.shm);
  CHECK(msgget(host.key, 0) == host.msg);
}
