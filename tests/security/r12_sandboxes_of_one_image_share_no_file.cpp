// R12: sandboxes of one image: what one writes, removes or replaces is never seen in the other, and
// the image is what it was.

#include <sys/stat.h>

#include <fstream>

#include "security/attack.h"

using namespace talon::testing;
namespace fs = std::filesystem;

namespace {

// Every name below with its type, mode, owner, links, size, time and content.
std::string print_of(const fs::path& root) {
  std::vector<std::string> lines;
  for (const auto& entry : fs::recursive_directory_iterator{root}) {
    struct stat st{};
    CHECK(lstat(entry.path().c_str(), &st) == 0);
    std::ostringstream line;
    line << entry.path() << ' ' << st.st_mode << ' ' << st.st_uid << ' ' << st.st_nlink << ' '
         << st.st_size << ' ' << st.st_mtim.tv_sec << '.' << st.st_mtim.tv_nsec;
    if (S_ISREG(st.st_mode)) {
      line << ' ' << std::hash<std::string>{}(read_text(entry.path()));
    }
    lines.push_back(line.str());
  }
  std::ranges::sort(lines);
  std::string out;
  for (const std::string& line : lines) {
    out += line + "\n";
  }
  return out;
}

void add_directory(const fs::path& image) {
  fs::create_directories(image / "opt/dir");
  std::ofstream{image / "opt/dir/old"} << "old\n";
  std::ofstream{image / "tmp/shared"} << "shared\n";
  fs::permissions(image / "tmp/shared", fs::perms{0666});
}

}  // namespace

TEST_CASE("R12: two sandboxes of one image share no file, and the image stays as it was") {
  TALON_NEED_SANDBOXES();
  in_every_column(
      [](Field& field) {
        const std::string image = print_of(field.lab.image());
        Box one = field.create();
        Box two = field.create();
        const bool root = *field.column.user == '\0';
        CHECK(field.sh(one, "echo mine >> /tmp/shared; echo x > /tmp/new; cat /tmp/new").out ==
              "x\n");
        const Ran changed = field.sh(
            one,
            "rm /etc/marker && rm -r /opt/dir && mkdir /opt/dir && echo new > /opt/dir/new && "
            "mv /home /moved && chmod 0700 /etc && ln /etc/passwd /etc/hard && chown 7 /etc/group");
        CHECK(changed.code == (root ? 0 : 1));
        if (root) {
          // A removed file stays removed, a replaced directory holds nothing of the image's.
          CHECK(field.run(one, {"/bin/test", "-e", "/etc/marker"}).code == 1);
          CHECK(field.run(one, {"/bin/ls", "/opt/dir"}).out == "new\n");
        }
        CHECK(field.run(two, {"/bin/cat", "/tmp/shared"}).out == "shared\n");
        CHECK(field.run(two, {"/bin/test", "-e", "/tmp/new"}).code == 1);
        CHECK(field.run(two, {"/bin/cat", "/etc/marker"}).out == "from the image\n");
        CHECK(field.run(two, {"/bin/ls", "/opt/dir"}).out == "old\n");
        CHECK(field.run(two, {"/bin/test", "-d", "/home"}).code == 0);
        CHECK(print_of(field.lab.image()) == image);
        field.lab.destroy(one);
        field.lab.destroy(two);
        CHECK(print_of(field.lab.image()) == image);
      },
      {.image = add_directory});
}
