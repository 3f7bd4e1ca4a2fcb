#include "train/inputs/match_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text/text.h"
#include "checkpoint/safetensors.h"

namespace ddp {
namespace {

constexpr std::string_view kSeparators = "./:|";

// Parts of names that stand for a wrapper around a module.
constexpr std::array<std::string_view, 5> kWrappers = {"module", "_orig_mod", "_fsdp_wrapped_module",
                                                       "_checkpoint_wrapped_module", "_forward_module"};

std::string without_wrappers(std::string_view name) {
  std::string result;
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, dot);
    name.remove_prefix(std::min(dot + 1, name.size()));
    if (!name.empty() && std::find(kWrappers.begin(), kWrappers.end(), part) != kWrappers.end()) continue;
    if (!result.empty()) result += '.';
    result += part;
  }
  return result;
}

// The prefixes of a name that end with a separator, the empty one first.
std::vector<std::string> prefixes_of(std::string_view name) {
  std::vector<std::string> prefixes = {""};
  for (std::size_t i = 0; i + 1 < name.size(); ++i) {
    if (kSeparators.find(name[i]) != std::string_view::npos) prefixes.emplace_back(name.substr(0, i + 1));
  }
  return prefixes;
}

// One way to compare: which prefixes both sides lose, and whether wrappers are left out.
struct Reading {
  std::string of_file;
  std::string of_network;
  bool wrappers = false;
  std::size_t found = 0;  // tensors of the network
};

// The names of both sides, with or without wrappers.
struct Names {
  std::vector<std::string> file;
  std::vector<std::string> network;
  std::map<std::string, std::size_t, std::less<>> index;  // of the file
};

Names names_of(std::span<const FileTensor> in_file, std::span<const NetworkTensor> in_network, bool wrappers) {
  Names names;
  for (const FileTensor& tensor : in_file) {
    names.file.push_back(wrappers ? without_wrappers(tensor.name) : tensor.name);
    names.index.emplace(names.file.back(), names.file.size() - 1);
  }
  for (const NetworkTensor& tensor : in_network) {
    names.network.push_back(wrappers ? without_wrappers(tensor.name) : tensor.name);
  }
  return names;
}

// All readings under which at least one tensor is found, without wrappers or with them.
std::vector<Reading> readings_of(const Names& names, bool wrappers) {
  std::vector<Reading> readings;
  for (const std::string& of_network : prefixes_of(names.network.front())) {
    const auto has = [&](const std::string& name) { return name.starts_with(of_network); };
    if (!std::all_of(names.network.begin(), names.network.end(), has)) break;
    std::set<std::string_view> rest;
    for (const std::string& name : names.network) rest.insert(std::string_view(name).substr(of_network.size()));
    std::map<std::string, std::size_t> found;
    for (const auto& [name, index] : names.index) {
      for (const std::string& prefix : prefixes_of(name)) {
        if (rest.contains(std::string_view(name).substr(prefix.size()))) ++found[prefix];
      }
    }
    for (const auto& [prefix, count] : found) readings.push_back({prefix, of_network, wrappers, count});
  }
  return readings;
}

bool is_counter(std::string_view name) { return name.ends_with("num_batches_tracked"); }

std::string first_names(const auto& tensors) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> words;
  for (const auto& tensor : tensors) {
    if (!is_counter(tensor.name)) words.push_back("'" + tensor.name + "'");
  }
  const std::size_t more = words.size() - std::min(kShown, words.size());
  words.resize(words.size() - more);
  return join(words) + (more > 0 ? fmt::format(" and {} more", more) : "");
}

class Matcher {
 public:
  Matcher(std::span<const FileTensor> in_file, std::span<const NetworkTensor> in_network,
          const std::set<std::string>& passed_over)
      : in_file_(in_file), in_network_(in_network), passed_over_(passed_over) {}

  WeightMatch run() {
    if (in_network_.empty()) return {};
    const Reading reading = choose();
    const Names names = names_of(in_file_, in_network_, reading.wrappers);
    WeightMatch match;
    std::vector<const NetworkTensor*> missing;
    std::set<std::size_t> used;
    for (std::size_t i = 0; i < in_network_.size(); ++i) {
      const std::string name = reading.of_file + names.network[i].substr(reading.of_network.size());
      const auto found = names.index.find(name);
      if (found == names.index.end()) {
        missing.push_back(&in_network_[i]);
        continue;
      }
      match.sources.push_back(found->second);
      used.insert(found->second);
    }
    if (!missing.empty()) refuse_missing(missing);
    check_kinds(match);
    const std::size_t others = check_rest(reading, names, used);
    match.note = note_of(reading, others);
    return match;
  }

 private:
  // The reading with the fewest changes that finds all tensors; without one, that which finds most.
  Reading choose() const {
    Reading best;
    for (const bool wrappers : {false, true}) {
      const Names names = names_of(in_file_, in_network_, wrappers);
      std::vector<Reading> complete;
      for (const Reading& reading : readings_of(names, wrappers)) {
        if (reading.found > best.found) best = reading;
        if (reading.found == in_network_.size()) complete.push_back(reading);
      }
      if (complete.empty()) continue;
      // As they are, or with the least taken from the network's own names.
      const Reading first = complete.front();
      if (first.of_file == first.of_network) return first;
      check(
          complete.size() < 2 || complete[1].of_network != first.of_network, ExitCode::checkpoint,
          "the file has the weights of this model more than once, with '{}' and with '{}' before their names; keep one "
          "of them: save_file({{k: v for k, v in tensors.items() if k.startswith('{}')}}, path)",
          first.of_file, complete.size() < 2 ? "" : complete[1].of_file, first.of_file);
      return first;
    }
    return best;
  }

  std::string both() const {
    return fmt::format("the file has {}, this model {}", first_names(in_file_), first_names(in_network_));
  }

  [[noreturn]] void refuse(const std::string& what, bool only_classifier) const {
    throw Error(ExitCode::checkpoint, fmt::format("{}; use weights of this model{}", what,
                                                  only_classifier ? ", or --new-classifier for a new last layer" : ""));
  }

  [[noreturn]] void refuse_missing(const std::vector<const NetworkTensor*>& missing) const {
    const bool only_classifier =
        std::all_of(missing.begin(), missing.end(), [](const NetworkTensor* tensor) { return tensor->classifier; });
    if (missing.size() == in_network_.size()) {
      refuse("no name in the file is one of this model: " + both(), false);
    }
    refuse(fmt::format("{} of the {} tensors of this model are not in the file, the first is '{}': {}", missing.size(),
                       in_network_.size(), missing.front()->name, both()),
           only_classifier);
  }

  void check_kinds(const WeightMatch& match) const {
    const NetworkTensor* other = nullptr;
    const FileTensor* found = nullptr;
    bool only_classifier = true;
    for (std::size_t i = 0; i < in_network_.size(); ++i) {
      const FileTensor& source = in_file_[match.sources[i]];
      check(source.real, ExitCode::checkpoint,
            "tensor '{}' is of type {}, only F32, F16, BF16 and F64 are supported; convert it, in PyTorch with "
            "save_file({{name: t.float() for name, t in tensors.items()}}, path)",
            source.name, source.type);
      if (source.shape == in_network_[i].shape) continue;
      only_classifier = only_classifier && in_network_[i].classifier;
      if (other != nullptr) continue;
      other = &in_network_[i];
      found = &source;
    }
    if (other == nullptr) return;
    refuse(fmt::format("tensor '{}' has shape {} in the file, {} in this model", found->name, shape_text(found->shape),
                       shape_text(other->shape)),
           only_classifier);
  }

  // Throws for a tensor that should be the network's but is not. Returns how many have another prefix.
  std::size_t check_rest(const Reading& reading, const Names& names, const std::set<std::size_t>& used) const {
    std::size_t others = 0;
    for (std::size_t i = 0; i < in_file_.size(); ++i) {
      if (used.contains(i)) continue;
      const std::string& name = names.file[i];
      if (!name.starts_with(reading.of_file)) {
        ++others;
        continue;
      }
      const std::string rest = reading.of_network + name.substr(reading.of_file.size());
      if (is_counter(name) || passed_over_.contains(rest) || passed_over_.contains(name)) continue;
      refuse(fmt::format("tensor '{}' of the file is not in this model: {}", in_file_[i].name, both()), false);
    }
    return others;
  }

  static std::string note_of(const Reading& reading, std::size_t others) {
    std::vector<std::string> parts;
    if (reading.wrappers) parts.emplace_back("without the names of wrappers");
    if (reading.of_file != reading.of_network) {
      if (!reading.of_file.empty()) parts.push_back(fmt::format("without '{}'", reading.of_file));
      if (!reading.of_network.empty()) parts.push_back(fmt::format("with '{}'", reading.of_network));
    }
    std::string note = join(parts, ", ");
    if (others > 0) {
      note += fmt::format("; {} passed over, whose name{} begin{} otherwise", counted(others, "tensor"),
                          others == 1 ? "" : "s", others == 1 ? "s" : "");
    }
    return note;
  }

  std::span<const FileTensor> in_file_;
  std::span<const NetworkTensor> in_network_;
  const std::set<std::string>& passed_over_;
};

}  // namespace

WeightMatch match_weights(std::span<const FileTensor> in_file, std::span<const NetworkTensor> in_network,
                          const std::set<std::string>& passed_over) {
  return Matcher(in_file, in_network, passed_over).run();
}

}  // namespace ddp
