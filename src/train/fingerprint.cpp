#include "train/fingerprint.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>

#include "base/host.h"
#include "base/text.h"
#include "checkpoint/digest.h"
#include "runtime/joint_error.h"

namespace ddp {
namespace {

const FingerprintPart* find(const Fingerprint& parts, const std::string& name) {
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const FingerprintPart& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

// A line a part, which neither name nor value may break.
std::string to_lines(const Fingerprint& parts) {
  std::string text;
  for (const FingerprintPart& part : parts) text += one_line(part.name) + "\t" + one_line(part.value) + "\n";
  return text;
}

Fingerprint from_lines(const std::string& text) {
  Fingerprint parts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    parts.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return parts;
}

}  // namespace

std::string differences(const Fingerprint& mine, const Fingerprint& other) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> texts;
  for (const FingerprintPart& part : mine) {
    const FingerprintPart* same = find(other, part.name);
    if (same == nullptr) {
      texts.push_back(fmt::format("{} {} in place of none", part.name, part.value));
    } else if (same->value != part.value) {
      texts.push_back(fmt::format("{} {} in place of {}", part.name, part.value, same->value));
    }
  }
  for (const FingerprintPart& part : other) {
    if (find(mine, part.name) == nullptr) {
      texts.push_back(fmt::format("{} none in place of {}", part.name, part.value));
    }
  }
  if (texts.size() > kShown) {
    const std::size_t more = texts.size() - kShown;
    texts.resize(kShown);
    texts.push_back(fmt::format("and {} more", more));
  }
  return join(texts);
}

void check_same_on_all_ranks(Communicator& ranks, const Fingerprint& mine, ExitCode code, std::string_view advice) {
  if (ranks.size() == 1) return;
  // Through lines on both sides, so that what lines cannot hold makes no difference.
  const std::string own = to_lines(mine);
  const std::string first = ranks.broadcast_text(own, 0);
  const std::string host = ranks.broadcast_text(host_name(), 0);
  std::vector<std::int64_t> differs(static_cast<std::size_t>(ranks.size()));
  const std::int64_t here = own == first ? 0 : 1;
  ranks.all_gather(std::as_bytes(std::span(&here, 1)), std::as_writable_bytes(std::span(differs)));
  const auto lowest = std::find(differs.begin(), differs.end(), 1);
  if (lowest == differs.end()) return;
  const auto rank = static_cast<int>(lowest - differs.begin());
  const auto count = std::count(differs.begin(), differs.end(), 1);
  const std::string line = ranks.broadcast_text(
      here == 0 ? ""
                : fmt::format("rank {} on host {} has {}, which is rank 0's on host {}{}; {}", rank, host_name(),
                              differences(from_lines(own), from_lines(first)), host,
                              count == 1 ? "" : fmt::format(" ({} ranks differ from it)", count), advice),
      rank);
  throw JointError(code, line, ranks.rank() == rank);
}

FingerprintPart tensors_part(const std::string& name, std::span<const TensorView> tensors) {
  Hasher hasher;
  for (const TensorView& tensor : tensors) {
    hasher.update(std::as_bytes(std::span(tensor.name)));
    hasher.update(std::as_bytes(std::span(tensor.shape)));
    hasher.update(std::as_bytes(std::span(tensor.data, tensor.elements())));
  }
  return {name, hasher.finish().xxh3_128};
}

std::string first_not_finite(std::span<const TensorView> tensors) {
  for (const TensorView& tensor : tensors) {
    const std::span<const float> values(tensor.data, tensor.elements());
    if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
      return tensor.name;
    }
  }
  return "";
}

}  // namespace ddp
