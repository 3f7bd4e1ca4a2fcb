// A folder that is removed with its object; in /dev/shm where available, because tests sync files often.
//
//   TemporaryFolder folder;
//   write(folder.path() / "a.txt");
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace ddp {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    for (const std::filesystem::path& parent : {std::filesystem::path("/dev/shm"), disk()}) {
      std::string name = (parent / "ddp-test-XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) continue;
      path_ = name;
      return;
    }
    throw std::runtime_error("cannot make a temporary folder in " + disk().string());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  static std::filesystem::path disk() { return std::filesystem::temp_directory_path(); }

  std::filesystem::path path_;
};

}  // namespace ddp
