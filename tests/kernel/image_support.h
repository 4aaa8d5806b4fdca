#pragma once
// Scratch directories, small file helpers and hand-made tar archives for the image tests. The
// archives are written byte by byte, because no tool makes the hostile ones.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isolate/image/tree.h"

namespace talon::test {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/talon-image-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() { (void)isolate::image::remove_tree(AT_FDCWD, path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string{name}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void put(const std::string& path, std::string_view text, mode_t mode = 0644) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  (void)!write(fd, text.data(), text.size());
  fchmod(fd, mode);
  close(fd);
}

inline std::string slurp(int dir, const std::string& path) {
  auto text = read_file_at(dir, path, 16 << 20);
  return text ? *text : "<" + text.error().message + ">";
}
inline std::string slurp(const std::string& path) { return slurp(AT_FDCWD, path); }

inline void make_dir(const std::string& path, mode_t mode = 0755) {
  mkdir(path.c_str(), 0700);
  chmod(path.c_str(), mode);
}

// lstat; st_mode 0 when there is nothing.
inline struct stat look(int dir, const std::string& path) {
  struct stat st{};
  if (fstatat(dir, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    st = {};
  }
  return st;
}
inline bool exists(int dir, const std::string& path) { return look(dir, path).st_mode != 0; }
inline bool exists(const std::string& path) { return exists(AT_FDCWD, path); }

inline std::string link_target(int dir, const std::string& path) {
  char buffer[4096];
  const ssize_t n = readlinkat(dir, path.c_str(), buffer, sizeof buffer);
  return n < 0 ? "" : std::string{buffer, static_cast<std::size_t>(n)};
}

inline std::vector<std::string> names(const std::string& path) {
  std::vector<std::string> out;
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (auto entries = isolate::image::list_dir(fd)) {
    for (auto& e : *entries) {
      out.push_back(e.name);
    }
  }
  close(fd);
  return out;
}

// POSIX ustar with pax records (pax(1)); types '0' file '1' hard link '2' symlink '3' character
// device '5' directory '6' FIFO.
class Tar {
 public:
  struct Entry {
    std::string name = {};
    char type = '0';
    std::string data = {};
    std::string link = {};
    unsigned mode = 0644;
    unsigned long uid = 0;
    unsigned long gid = 0;
    std::vector<std::pair<std::string, std::string>> pax = {};
    unsigned long long claimed_size = 0;  // not 0: what the header says instead of data's size
  };
  Tar& add(Entry e) {
    if (!e.pax.empty()) {
      std::string records;
      for (const auto& [key, value] : e.pax) {
        const std::size_t body = key.size() + value.size() + 3;  // space, =, newline
        std::size_t length = body + 1;
        while (std::to_string(length).size() + body != length) {
          ++length;
        }
        records += std::to_string(length) + " " + key + "=" + value + "\n";
      }
      raw({.name = "pax", .type = 'x', .data = records});
    }
    raw(e);
    return *this;
  }
  Tar& file(std::string name, std::string data, unsigned mode = 0644) {
    return add({.name = std::move(name), .data = std::move(data), .mode = mode});
  }
  Tar& dir(std::string name, unsigned mode = 0755) {
    return add({.name = std::move(name), .type = '5', .mode = mode});
  }
  Tar& symlink(std::string name, std::string target) {
    return add({.name = std::move(name), .type = '2', .link = std::move(target), .mode = 0777});
  }
  Tar& hard(std::string name, std::string target) {
    return add({.name = std::move(name), .type = '1', .link = std::move(target)});
  }
  std::string cut() const { return bytes_; }  // without the end mark
  std::string whole() const { return bytes_ + std::string(1024, '\0'); }

 private:
  static void number(char* at, std::size_t width, unsigned long long value) {
    std::string digits;
    for (; value != 0; value /= 8) {
      digits.insert(digits.begin(), static_cast<char>('0' + value % 8));
    }
    std::memset(at, '0', width - 1);
    std::memcpy(at + width - 1 - digits.size(), digits.data(), digits.size());
  }
  void raw(const Entry& e) {
    char h[512] = {};
    const auto text = [&h](std::size_t at, std::size_t width, const std::string& value) {
      std::memcpy(h + at, value.data(), std::min(width, value.size()));
    };
    text(0, 100, e.name);
    number(h + 100, 8, e.mode);
    number(h + 108, 8, e.uid);
    number(h + 116, 8, e.gid);
    number(h + 124, 12, e.claimed_size != 0 ? e.claimed_size : e.data.size());
    number(h + 136, 12, 1'700'000'000);
    std::memset(h + 148, ' ', 8);
    h[156] = e.type;
    text(157, 100, e.link);
    std::memcpy(h + 257, "ustar\00000", 8);
    number(h + 329, 8, 1);
    number(h + 337, 8, 3);
    unsigned sum = 0;
    for (const char c : h) {
      sum += static_cast<unsigned char>(c);
    }
    number(h + 148, 7, sum);
    bytes_.append(h, sizeof h);
    bytes_ += e.data;
    bytes_.append((512 - e.data.size() % 512) % 512, '\0');
  }
  std::string bytes_;
};

}  // namespace talon::test
