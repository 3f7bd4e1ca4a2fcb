// Shared by the fuzz programs: valid outcomes of a parser, and files in memory.
//
//   extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
//     const std::string text(reinterpret_cast<const char*>(data), size);
//     ddp::fuzz::parses([&] { (void)ddp::parse_state(text, "state.json"); });
//     return 0;
//   }
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"

// libFuzzer's default mutation of the first `size` bytes of `data`; returns the new size, at most `most`.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace ddp::fuzz {

using Bytes = std::vector<std::uint8_t>;

// Aborts if `holds` is false; libFuzzer then stores the input.
inline void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

// Returns true if `parse` accepts its input. It may only throw an Error with a one-line message that is not internal.
template <class Parse>
bool parses(const Parse& parse) {
  static const bool quiet = (log_set_level(LogLevel::error), true);
  (void)quiet;
  try {
    parse();
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(error.code() != ExitCode::internal && error.code() != ExitCode::done, "an internal error: " + message);
    for (const char c : message) {
      require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "an error of more than one line: " + message);
    }
    return false;
  }
}

inline std::string text_of(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

// An anonymous file in memory, for parsers that take a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    require(descriptor_ >= 0, "memfd_create failed");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void assign(std::span<const std::uint8_t> bytes) const {
    require(::ftruncate(descriptor_, 0) == 0 &&
                ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<::ssize_t>(bytes.size()),
            "a file in memory cannot be written");
  }
  void assign(const std::string& text) const {
    assign(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

// Mutates a buffer of our own, such as decompressed content, with libFuzzer's default mutation.
inline void mutate(Bytes& bytes, std::size_t most) {
  const std::size_t size = bytes.size();
  bytes.resize(size < most ? most : size);
  bytes.resize(LLVMFuzzerMutate(bytes.data(), size, bytes.size()));
}

// Small random numbers for mutations, from libFuzzer's seed (G. Marsaglia, "Xorshift RNGs", 2003).
class Dice {
 public:
  explicit Dice(unsigned seed) : state_(seed * 2654435761U + 1U) {}
  // Uniform in [0, sides).
  std::size_t roll(std::size_t sides) {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return static_cast<std::size_t>(state_ >> 11U) % sides;
  }

 private:
  std::uint64_t state_;
};

}  // namespace ddp::fuzz
