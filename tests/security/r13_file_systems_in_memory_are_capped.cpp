// R13: what lies in memory is bounded in bytes and in files; when it is full the sandbox has ENOSPC
// and everyone else what he had. That its pages count as the sandbox's memory: tests/vm/memory.

#include "security/attack.h"

using namespace talon::testing;

TEST_CASE("R13: /dev/shm and a root in memory end at their size and at their number of files") {
  TALON_NEED_SANDBOXES();
  const auto small = [](auto& spec) {
    spec.shm_bytes = 2 << 20;
    spec.memory_root_bytes = 4 << 20;
  };
  in_every_column(
      [](Field& field) {
        Box box = field.create();
        Attacker a{field.lab, box, field.column.user};
        const bool memory = field.column.storage == talon::isolate::Storage::memory;
        const auto full = [&](const std::string& dir, long most) {
          INFO(dir);
          const Finding bytes = a.look({"fill", dir + "/big", std::to_string(16 << 20)});
          CHECK(bytes["name"] == "ENOSPC");
          CHECK(Attacker::number(bytes, "written") <= most);
          CHECK(Attacker::number(bytes, "written") > most / 2);
          if (a.root() &&
              !field.column.ahead) {  // seconds each; the other columns' trees are no other
            const Finding files = a.look({"fill-inodes", dir, "200000"});
            CHECK(files["name"] == "ENOSPC");
            CHECK(Attacker::number(files, "made") > 0);
          }
        };
        full("/dev/shm", 2 << 20);
        if (memory) {
          full("/tmp", 4 << 20);
          CHECK(a.run({"/bin/touch", "/workspace/x"}).code == (a.root() ? 0 : 1));
        } else {
          CHECK(a.run({"/bin/touch", "/tmp/x"}).code == 0);
        }
        // A full sandbox still runs programs, and its neighbour has all of its own.
        CHECK(a.run({"/bin/echo", "alive"}).out == "alive\n");
        Box other = field.create();
        CHECK(field.run(other, {"/bin/probe", "fill", "/dev/shm/big", "1048576"})
                  .out.find("\"OK\"") != std::string::npos);
        field.lab.destroy(other);
        field.lab.destroy(box);
      },
      {.spec = small});
}
