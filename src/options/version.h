// The text of --version: this program and its libraries. Each folder reports the libraries that it uses.
//
//   const std::array libraries = {boost_version(), mpi_version()};
//   std::cout << version_text(libraries);
#pragma once

#include <span>
#include <string>

namespace ddp {

struct LibraryVersion {
  std::string name;     // "oneDNN"
  std::string version;  // "2.6.3 (OpenMP)"
};

// The version of this program: "0.1.0".
std::string program_version();

LibraryVersion boost_version();

// One line for the program and its compiler, and one for each library.
std::string version_text(std::span<const LibraryVersion> libraries);

}  // namespace ddp
