#include "train/inputs/init_from.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text/text.h"
#include "checkpoint/class_names.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "train/inputs/match_weights.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// Files of other programs are recognised by their first bytes, which cannot be a valid header length.
void check_kind(const fs::path& path) {
  File file(path, File::Mode::read, ExitCode::checkpoint);
  std::array<char, 16> bytes{};
  const std::size_t count = file.read(std::as_writable_bytes(std::span(bytes)));
  const std::string_view begin(bytes.data(), count);
  const bool zipped = begin.starts_with("PK\x03\x04");
  const bool pickled = begin.size() >= 2 && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5;
  check(!zipped && !pickled, ExitCode::checkpoint,
        "--init-from {}: this is a file of torch.save() (.pt, .pth) or Keras, not a .safetensors file; convert it: "
        "safetensors.torch.save_file(torch.load('{}', map_location='cpu'), 'weights.safetensors')",
        path.string(), path.filename().string());
  check(!begin.starts_with("\x89HDF"), ExitCode::checkpoint,
        "--init-from {}: this is an HDF5 file, as Keras writes them, not a .safetensors file; export the model as ONNX "
        "and pass it as --model",
        path.string());
  check(!begin.starts_with("version https://"), ExitCode::checkpoint,
        "--init-from {}: this is a pointer of Git LFS, not the file itself; get it with 'git lfs pull'", path.string());
  const bool text = std::all_of(begin.begin(), begin.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); });
  check(!text || !begin.starts_with('<'), ExitCode::checkpoint,
        "--init-from {}: this is a web page, not a .safetensors file; download the file itself", path.string());
}

// "model-00002-of-00005.safetensors": {"model", 2, 5}.
struct PartName {
  std::string stem;
  int part = 0;
  int parts = 0;
};

std::optional<PartName> part_name(const std::string& file) {
  const std::size_t end = file.size() - std::string_view(".safetensors").size();
  const std::size_t of = file.rfind("-of-", end);
  const std::size_t dash = of == std::string::npos || of == 0 ? of : file.rfind('-', of - 1);
  if (of == std::string::npos || dash == std::string::npos) return std::nullopt;
  PartName name{file.substr(0, dash)};
  const auto number = [&](std::size_t from, std::size_t to, int& value) {
    const auto result = std::from_chars(file.data() + from, file.data() + to, value);
    return result.ec == std::errc() && result.ptr == file.data() + to;
  };
  return number(dash + 1, of, name.part) && number(of + 4, end, name.parts) ? std::optional(name) : std::nullopt;
}

// The files of weights in a folder: model.safetensors, the only one, or all numbered parts of one.
std::vector<fs::path> weights_in(const fs::path& folder) {
  std::error_code error;
  if (fs::is_regular_file(folder / kModelFile, error)) return {folder / kModelFile};
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code unknown;
    if (entry->path().extension() == ".safetensors" && entry->is_regular_file(unknown)) files.push_back(entry->path());
  }
  if (error) file_error(ExitCode::checkpoint, "read the folder", folder, error.value());
  check(!files.empty(), ExitCode::checkpoint,
        "--init-from {}: this folder has neither checkpoints nor a .safetensors file; give a .safetensors file, a "
        "checkpoint or a run folder",
        folder.string());
  std::sort(files.begin(), files.end());
  if (files.size() == 1 && !part_name(files[0].filename().string())) return files;
  std::vector<std::string> names;
  std::set<int> numbers;
  bool parts = true;
  const std::optional<PartName> first = part_name(files[0].filename().string());
  for (const fs::path& file : files) {
    names.push_back(file.filename().string());
    const std::optional<PartName> name = part_name(names.back());
    parts = parts && name && first && name->stem == first->stem && name->parts == first->parts;
    if (parts) numbers.insert(name->part);
  }
  constexpr std::size_t kShown = 4;
  if (names.size() > kShown) {
    names[kShown - 1] = "...";
    names.resize(kShown);
  }
  check(parts, ExitCode::checkpoint, "--init-from {}: this folder has several files of weights ({}); name one of them",
        folder.string(), join(names));
  const auto expected = static_cast<std::size_t>(first->parts);
  check(numbers.size() == files.size() && files.size() == expected && *numbers.begin() == 1, ExitCode::checkpoint,
        "--init-from {}: of the {} parts of {} there are {}; complete the folder", folder.string(), first->parts,
        first->stem, files.size());
  return files;
}

// All tensors that weights are taken from.
struct WeightFiles {
  std::vector<SafetensorsFile> files;
  TrainedOn origin;
};

WeightFiles open_weights(const fs::path& path) {
  std::error_code error;
  check(fs::exists(path, error), ExitCode::checkpoint,
        "--init-from {}: no such file or folder; give a .safetensors file, a checkpoint or a run folder",
        path.string());
  WeightFiles weights;
  const bool folder = fs::is_directory(path, error);
  const auto has = [&](const char* name) { return fs::exists(path / name, error); };
  if (folder && (has(kManifestFile) || has(kStateFile) || has(kCheckpointsFolder))) {
    const Checkpoint checkpoint = open_checkpoint(path);
    const TrainingState& state = checkpoint.state;
    weights.files.push_back(read_weights(checkpoint));
    weights.origin = {state.mean, state.deviation, state.classes};
    return weights;
  }
  // The table of a file in parts.
  const bool index = path.filename().string().ends_with(".safetensors.index.json");
  const fs::path parts = index ? (path.has_parent_path() ? path.parent_path() : fs::path(".")) : path;
  for (const fs::path& file : folder || index ? weights_in(parts) : std::vector{path}) {
    check_kind(file);
    weights.files.push_back(SafetensorsFile::read(file, TensorTypes::any));
  }
  weights.origin = trained_on(weights.files.front().metadata());
  return weights;
}

// A list in JSON; empty if it is none of this kind.
template <class T>
std::vector<T> list_in(const std::map<std::string, std::string>& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return {};
  const nlohmann::json list = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  std::vector<T> values;
  if (!list.is_array()) return values;
  for (const auto& each : list) {
    const bool fits = std::is_same_v<T, std::string> ? each.is_string() : each.is_number();
    if (!fits) return {};
    values.push_back(each.template get<T>());
  }
  return values;
}

// Where the tensors of the network are written.
struct Destinations {
  std::vector<NetworkTensor> tensors;
  std::vector<float*> data;
  std::set<std::string> passed_over;  // names of the network that are not read

  void add(const std::string& name, const std::vector<std::int64_t>& shape, bool classifier, float* to) {
    tensors.push_back({name, shape, classifier});
    data.push_back(to);
  }
};

Destinations destinations_of(const Graph& graph, const InitialTensors& into) {
  Destinations result;
  for (const Parameter& p : graph.parameters()) {
    const FirstValue from = first_value(graph, p, into.new_classifier);
    if (from == FirstValue::initialization) result.passed_over.insert(p.name);
    if (from != FirstValue::file) continue;
    result.add(p.name, p.shape, p.layer == graph.classifier(), into.parameters.data() + p.offset);
  }
  for (const Constant& constant : graph.constants()) result.passed_over.insert(constant.name);
  for (const Statistic& s : graph.statistics()) {
    result.add(s.name, {s.channels}, false, into.statistics.data() + s.offset);
  }
  return result;
}

bool differ(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kRounding = 1e-4;
  return !std::equal(a.begin(), a.end(), b.begin(), b.end(),
                     [](double x, double y) { return std::abs(x - y) <= kRounding * std::max(1.0, std::abs(y)); });
}

}  // namespace

FirstValue first_value(const Graph& graph, const Parameter& parameter, bool new_classifier) {
  if (parameter.fixed) return FirstValue::model;
  return new_classifier && parameter.layer == graph.classifier() ? FirstValue::initialization : FirstValue::file;
}

TrainedOn trained_on(const std::map<std::string, std::string>& metadata) {
  return {list_in<double>(metadata, "mean"), list_in<double>(metadata, "std"),
          list_in<std::string>(metadata, "classes")};
}

TrainedOn load_initial(const fs::path& path, const Graph& graph, const InitialTensors& into) {
  const WeightFiles weights = open_weights(path);
  std::vector<FileTensor> in_file;
  std::vector<std::pair<const SafetensorsFile*, const SafetensorsFile::Tensor*>> places;
  std::set<std::string_view> names;
  for (const SafetensorsFile& file : weights.files) {
    for (const SafetensorsFile::Tensor& tensor : file.tensors()) {
      check(names.insert(tensor.name).second, ExitCode::checkpoint,
            "--init-from {}: two of its files have the tensor '{}'; keep the parts of one file there", path.string(),
            tensor.name);
      in_file.push_back({tensor.name, tensor.shape, tensor.type, tensor.real()});
      places.emplace_back(&file, &tensor);
    }
  }
  const Destinations to = destinations_of(graph, into);
  WeightMatch match;
  try {
    match = match_weights(in_file, to.tensors, to.passed_over);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("--init-from {}: {}", path.string(), error.what()));
  }
  for (const std::size_t source : match.sources) places[source].first->check_finite(*places[source].second);
  for (std::size_t i = 0; i < match.sources.size(); ++i) {
    const auto& [file, tensor] = places[match.sources[i]];
    file->read_floats(*tensor, to.data[i]);
  }
  if (!match.note.empty()) log_info("--init-from {}: names are read {}", path.string(), match.note);
  return weights.origin;
}

void warn_of_other_inputs(const std::string& source, const TrainedOn& then, const TrainedOn& now) {
  const bool known =
      !then.mean.empty() && then.mean.size() == now.mean.size() && then.deviation.size() == now.deviation.size();
  if (known && (differ(then.mean, now.mean) || differ(then.deviation, now.deviation))) {
    log_warning(
        "{}: these weights were trained on images with mean {:.4g} and standard deviation {:.4g} taken off, this run "
        "takes off {:.4g} and {:.4g}; see --normalize",
        source, fmt::join(then.mean, " "), fmt::join(then.deviation, " "), fmt::join(now.mean, " "),
        fmt::join(now.deviation, " "));
  }
  if (then.classes.empty() || now.classes.empty() || class_difference(now.classes, then.classes).empty()) return;
  std::size_t first = 0;
  while (first < std::min(then.classes.size(), now.classes.size()) && then.classes[first] == now.classes[first])
    ++first;
  const auto class_at = [first](const std::vector<std::string>& classes) {
    return first < classes.size() ? "'" + classes[first] + "'" : std::string("missing");
  };
  log_warning(
      "{}: the classes of these weights have other names or another order, class {} is {} there and {} here; use "
      "--new-classifier unless they mean the same",
      source, first, class_at(then.classes), class_at(now.classes));
}

}  // namespace ddp
