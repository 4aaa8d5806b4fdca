#pragma once
// How an image comes into being: built in images/.tmp-<random>/ and renamed to <name>-<n> when
// whole and on disk, so a reader sees all of it or nothing (a kill -9 leaves a .tmp- directory,
// which the next maker removes). A .tmp- directory is flock'ed by its maker for as long as it
// lives: that is how the next one tells a leftover from work in progress. images/.lock is held
// for the short moments that create, number and rename.

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/image/manifest.h"

namespace talon::isolate::image {

class Maker {
 public:
  // `images`: the path of <data>/images. Removes leftovers of makers that died.
  static Result<Maker> begin(const std::string& images);
  Maker(Maker&&) = default;
  Maker& operator=(Maker&&) = delete;
  ~Maker();  // not published: what was made is removed

  int root() const { return root_.get(); }

  // Sets name's next generation and the time in the manifest, syncs, renames.
  Result<ImageInfo> publish(Manifest manifest);

 private:
  Maker() = default;
  UniqueFd images_;
  UniqueFd dir_;  // flock'ed
  UniqueFd root_;
  std::string tmp_;  // "" = published or moved from
};

// flock(2), waiting; released when the descriptor is closed.
Result<UniqueFd> lock_file(int images, const std::string& name);

// Renames `name` away under images/.lock and then removes it.
Result<> discard(int images, const std::string& name);

// Generations of `name` among the directory's entries, ascending.
Result<std::vector<std::uint32_t>> generations(int images, std::string_view name);

// "host-3" -> {"host", 3}; false for any other form.
bool split_dir_name(std::string_view dir, std::string& name, std::uint32_t& generation);

}  // namespace talon::isolate::image
