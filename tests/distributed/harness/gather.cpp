#include "distributed/harness/gather.h"

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <thread>

namespace ddp::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};

// "12:text of 12 char"
void append_text(std::string& bytes, const std::string& text) { bytes += std::to_string(text.size()) + ":" + text; }

std::string next_text(const std::string& bytes, std::size_t& position) {
  const std::size_t colon = bytes.find(':', position);
  const std::size_t length = std::stoul(bytes.substr(position, colon - position));
  position = colon + 1 + length;
  return bytes.substr(colon + 1, length);
}

}  // namespace

std::string pack(const std::vector<RankFailure>& failures) {
  std::string bytes;
  for (const RankFailure& failure : failures) {
    append_text(bytes, failure.place);
    append_text(bytes, failure.message);
  }
  return bytes;
}

std::vector<RankFailure> unpack(const std::string& bytes) {
  std::vector<RankFailure> failures;
  for (std::size_t position = 0; position < bytes.size();) {
    std::string place = next_text(bytes, position);
    std::string message = next_text(bytes, position);
    failures.push_back({std::move(place), std::move(message)});
  }
  return failures;
}

void RankListener::OnTestStart(const ::testing::TestInfo& /*test*/) { failures_.clear(); }

void RankListener::OnTestPartResult(const ::testing::TestPartResult& result) {
  if (!result.failed()) return;
  std::ostringstream place;
  place << (result.file_name() != nullptr ? result.file_name() : "unknown file") << ":" << result.line_number();
  failures_.push_back({place.str(), result.message()});
}

void RankListener::OnTestEnd(const ::testing::TestInfo& test) {
  wait_for_all(test);
  const std::vector<std::string> packed = gather(rank_ == 0 ? std::string() : pack(failures_));
  for (std::size_t rank = 1; rank < packed.size(); ++rank) {
    for (const RankFailure& failure : unpack(packed[rank])) {
      ADD_FAILURE() << "[rank " << rank << "] " << failure.place << "\n" << failure.message;
    }
  }
}

void RankListener::wait_for_all(const ::testing::TestInfo& test) const {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  std::fprintf(stderr, "[rank %d] other ranks did not finish %s.%s\n", rank_, test.test_suite_name(), test.name());
  for (const RankFailure& failure : failures_) {
    std::fprintf(stderr, "[rank %d] %s\n%s\n", rank_, failure.place.c_str(), failure.message.c_str());
  }
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

// Returns the texts of all ranks on rank 0, elsewhere an empty list.
std::vector<std::string> RankListener::gather(const std::string& mine) const {
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size_));
  MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<int> begins(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(rank_ == 0 ? static_cast<std::size_t>(begins.back() + lengths.back()) : 0, '\0');
  MPI_Gatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
  std::vector<std::string> texts;
  if (rank_ != 0) return texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    texts.push_back(all.substr(static_cast<std::size_t>(begins[rank]), static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

}  // namespace ddp::testing
