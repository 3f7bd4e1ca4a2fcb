// ddp_train check: whether every rank's device computes correctly, whether the all-reduce between the ranks is correct,
// and how fast it is. The sums use the same path as gradients in training.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/output.h"
#include "base/text/text.h"
#include "base/text/text_table.h"
#include "comm/sums/device_communicator.h"
#include "commands/commands.h"
#include "commands/measure/links.h"
#include "commands/ranks.h"
#include "job/report.h"
#include "train/loop/open_device.h"

namespace ddp {
namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 10U;
constexpr std::size_t kLargest = std::size_t{64} << 20U;
constexpr double kSecondsPerSize = 0.05;
constexpr int kMostRepeats = 1000;
// A size is skipped if its sums would take longer than this in total.
constexpr double kMostSecondsPerSize = 3;
// The minimum number of times a sum is computed, for verification and for timing.
constexpr double kLeastSums = 3;

// [[1,2,3],[4,5,6]] times [[1,2],[3,4],[5,6]].
constexpr std::array<float, 6> kLeftMatrix = {1, 2, 3, 4, 5, 6};
constexpr std::array<float, 6> kRightTransposed = {1, 3, 5, 2, 4, 6};
constexpr std::array<float, 4> kProduct = {22, 28, 49, 64};
using Matrix = std::array<float, 4>;

std::string matrix_text(const Matrix& m) { return fmt::format("[[{:g}, {:g}], [{:g}, {:g}]]", m[0], m[1], m[2], m[3]); }

// Small whole numbers are exact in all types of activations.
std::vector<std::byte> encode(std::span<const float> values, Element element) {
  std::vector<std::byte> bytes(values.size() * bytes_of(element));
  for (std::size_t i = 0; i < values.size(); ++i) set_value(bytes.data(), element, i, values[i]);
  return bytes;
}
Matrix decode(std::span<const std::byte> bytes, Element element) {
  Matrix values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(bytes.data(), element, i);
  return values;
}

// The product as the device computes it: a linear operator without bias.
Matrix multiply(Backend& backend) {
  const LinearSpec spec{.batch = 2, .inputs = 3, .outputs = 2, .relu = false, .input_gradient = false};
  const KernelChoice choice = backend.chooser().choose(spec, Layout::plain, Layout::plain, ChoiceMode::fixed);
  const std::unique_ptr<Op> op = backend.ops().make_op(spec, Layout::plain, Layout::plain, choice.kernels);
  const Element element = backend.ops().traits().activation_element;
  const std::vector<std::byte> left = encode(kLeftMatrix, element);
  std::vector<std::byte> product(kProduct.size() * bytes_of(element));
  const Memory x = backend.memory().allocate(left.size(), "the matrices of a check");
  const Memory y = backend.memory().allocate(product.size(), "the matrices of a check");
  const Memory weight = backend.memory().allocate(sizeof kRightTransposed, "the matrices of a check");
  const Memory bias = backend.memory().allocate(2 * sizeof(float), "the matrices of a check");
  const Memory saved =
      backend.memory().allocate(std::max<std::size_t>(1, op->traits().saved_bytes), "the matrices of a check");
  const Memory workspace =
      backend.memory().allocate(std::max<std::size_t>(1, op->traits().workspace_bytes), "the matrices of a check");
  backend.queue().upload(x.data(), left.data(), left.size());
  backend.queue().upload(weight.data(), kRightTransposed.data(), sizeof kRightTransposed);
  op->forward({.inputs = {ConstActivations(x.data(), element)},
               .y = {y.data(), element},
               .parameters = {weight.at<float>(0), bias.at<float>(0)},
               .saved = saved.data(),
               .workspace = workspace.data(),
               .active = spec.batch});
  backend.queue().download(product.data(), y.data(), product.size());
  backend.queue().synchronize();
  return decode(product, element);
}

// Integers that differ by rank and position, small enough that sums over 10,000 ranks are exact in fp32.
float number_of(std::int64_t rank, std::size_t i) {
  return static_cast<float>(i % 1021 + static_cast<std::size_t>(rank % 64) * (1 + i % 7));
}
float sum_of(std::int64_t ranks, std::int64_t rank_sum, std::size_t i) {
  return static_cast<float>(static_cast<std::size_t>(ranks) * (i % 1021) +
                            static_cast<std::size_t>(rank_sum) * (1 + i % 7));
}

class Check {
 public:
  Check(const MpiSession& session, Ranks& ranks)
      : session_(session),
        ranks_(*ranks.communicator),
        backend_(together(session, [&] { return open_backend(ranks.device); })),
        sums_(or_abort(session, [&] {
          return open_sums(ranks.device, ranks_, backend_->device(), SumOrder{}, SingleRank::with_nccl);
        })) {}

  std::string description() const {
    return fmt::format("device  {}\nsums    {}\n\n", backend_->ops().traits().description, sums_->description());
  }

  // Returns the sum of the ranks' products.
  Matrix check_product() {
    const Matrix mine = together(session_, [&] {
      const Matrix product = multiply(*backend_);
      check(product == kProduct, ExitCode::preflight, "the device computed {}, expected {}; it is unreliable",
            matrix_text(product), matrix_text(kProduct));
      return product;
    });
    Matrix sum{};
    or_abort(session_, [&] {
      const Memory values = backend_->memory().allocate(sizeof mine, "the matrices of a check");
      backend_->queue().upload(values.data(), mine.data(), sizeof mine);
      add_up(values, mine.size());
      backend_->queue().download(sum.data(), values.data(), sizeof sum);
      sums_->wait("the sum of the products");
    });
    Matrix expected = kProduct;
    for (float& value : expected) value *= static_cast<float>(ranks_.size());
    together(session_, [&] {
      check(sum == expected, ExitCode::preflight, "the ranks' products add up to {} by {}, expected {}",
            matrix_text(sum), sums_->description(), matrix_text(expected));
    });
    return sum;
  }

  // A row of the table: verifies and times the sum of `bytes` bytes.
  std::vector<std::string> check_size(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    Memory memory = together(session_, [&] { return backend_->memory().allocate(bytes, "the numbers of a check"); });
    std::vector<float> numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = number_of(ranks_.rank(), i);
    const std::string what = fmt::format("the sum of {}", format_bytes(bytes));
    or_abort(session_, [&] {
      backend_->queue().upload(memory.data(), numbers.data(), bytes);
      add_up(memory, count);
      backend_->queue().download(numbers.data(), memory.data(), bytes);
      sums_->wait(what);
    });
    together(session_, [&] { compare(numbers, what); });
    const double seconds = or_abort(session_, [&] { return time_sums(memory, count, what); });
    const double gigabytes = static_cast<double>(bytes) / seconds * 1e-9;
    const double ranks = ranks_.size();
    std::vector<std::string> row = {format_bytes(bytes), format_duration(seconds)};
    // A single rank transfers nothing.
    if (ranks_.size() == 1) return row;
    // The traffic on each rank's link: a ring sends 2 (N-1)/N of the data, where N is the number of ranks.
    for (const double speed : {gigabytes, gigabytes * 2 * (ranks - 1) / ranks})
      row.push_back(fmt::format("{:.3f}", speed));
    return row;
  }

 private:
  void add_up(const Memory& memory, std::size_t count) {
    sums_->all_reduce(memory.at<float>(0), count, Start::at_join);
    sums_->join();
  }

  void compare(const std::vector<float>& sums, const std::string& what) const {
    std::int64_t rank_sum = 0;
    for (int rank = 0; rank < ranks_.size(); ++rank) rank_sum += rank % 64;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float right = sum_of(ranks_.size(), rank_sum, i);
      if (sums[i] == right) continue;  // the description is not needed for each of millions
      throw Error(ExitCode::preflight, fmt::format("{} by {} is wrong: element {} is {}, expected {}", what,
                                                   sums_->description(), i, sums[i], right));
    }
  }

  // The mean of many, on the slowest rank. The values are zero during timing so that they do not grow.
  double time_sums(const Memory& memory, std::size_t count, const std::string& what) {
    backend_->math().fill_zero(memory.data(), count * sizeof(float));
    const auto run = [&](int repeats) {
      sums_->wait(what);
      ranks_.barrier();
      const double begin = now();
      for (int i = 0; i < repeats; ++i) add_up(memory, count);
      sums_->wait(what);
      double seconds = now() - begin;
      ranks_.all_reduce(std::span(&seconds, 1), ReduceOp::max);
      return std::max(seconds / repeats, 1e-9);
    };
    const double first = run(2);
    if (2 * first >= kSecondsPerSize) return first;
    return run(static_cast<int>(std::clamp(kSecondsPerSize / first, 2.0, static_cast<double>(kMostRepeats))));
  }

  const MpiSession& session_;
  Communicator& ranks_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceCommunicator> sums_;
};

}  // namespace

int run_check(const MpiSession& session, const Options& options) {
  Options mine = options;
  mine.device.log_placement = true;
  Ranks ranks = open_ranks(session, mine);
  log_device(ranks.device);
  const auto print = [&](const std::string& text) {
    if (session.rank() == 0) print_text("{}", text);
  };
  Check check(session, ranks);
  print(check.description());
  print(fmt::format("sum of {}: {}\n\n", counted(static_cast<std::uint64_t>(session.size()), "product"),
                    matrix_text(check.check_product())));
  const Links links = measure_links(*ranks.communicator, ranks.topology);
  print(describe(links));
  if (!links.measured.empty()) print("\n");
  std::vector<std::vector<std::string>> rows = {{"size", "time"}};
  if (session.size() > 1) rows[0].insert(rows[0].end(), {"algorithm GB/s", "bus GB/s"});
  std::size_t bytes = kSmallest;
  // A ring sends all of the data about twice over its slowest link, regardless of the number of ranks.
  const auto takes = [&](std::size_t size) { return kLeastSums * 2 * static_cast<double>(size) / slowest_rate(links); };
  for (; bytes <= kLargest && takes(bytes) < kMostSecondsPerSize; bytes *= 4) rows.push_back(check.check_size(bytes));
  print(text_table(rows, std::vector(4, Align::right)));
  if (bytes <= kLargest) {
    print(fmt::format("larger sizes are skipped: a sum of {} would take {}\n", format_bytes(bytes),
                      format_duration(takes(bytes) / kLeastSums)));
  }
  print("\nready\n");
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
