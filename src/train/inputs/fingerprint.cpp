#include "train/inputs/fingerprint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <sstream>

#include "base/host.h"
#include "base/text/text.h"
#include "checkpoint/digest.h"
#include "job/joint_error.h"
#include "options/table/table.h"
#include "options/version.h"

namespace ddp {
namespace {

const FingerprintPart* find(const Fingerprint& parts, const std::string& name) {
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const FingerprintPart& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

// One line per part; neither name nor value may contain a line break.
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

// Options that may differ between ranks, and between a run and its continuation: paths, distribution of work, timeouts,
// output.
constexpr std::array<std::string_view, 22> kLocal = {"bind",
                                                     "checkpoint",
                                                     "data-dir",
                                                     "device",
                                                     "gpu-memory-fraction",
                                                     "gpu-memory-limit",
                                                     "gpus",
                                                     "keep-checkpoints",
                                                     "log-level",
                                                     "log-placement",
                                                     "max-bad-samples",
                                                     "output",
                                                     "overlap",
                                                     "plan-cache",
                                                     "prefetch",
                                                     "progress",
                                                     "resume",
                                                     "run",
                                                     "threads",
                                                     "timeout",
                                                     "to",
                                                     "workers"};

bool is_local(std::string_view key) { return std::find(kLocal.begin(), kLocal.end(), key) != kLocal.end(); }

std::string text_hash(std::string_view text) { return digest_of(std::as_bytes(std::span(text))).xxh3_128; }

std::string shape_of(const Shape& s) { return fmt::format("{}x{}x{}", s.channels, s.height, s.width); }

// The number of evenly spaced images whose pixels are hashed; fewer for images that must be decoded.
constexpr std::int64_t kSampledImages = 256;
constexpr std::int64_t kSampledFiles = 8;

// The pixels are those that training, or evaluation, reads.
void add_set(const std::string& what, const Dataset& data, bool trains, bool decodes, Fingerprint& parts) {
  const Shape shape = data.shape();
  parts.push_back({what + " images", fmt::format("{} of {}x{}x{} in {} classes", data.size(), shape.channels,
                                                 shape.height, shape.width, data.classes())});
  std::vector<std::int32_t> labels;
  labels.reserve(static_cast<std::size_t>(data.size()));
  for (std::int64_t i = 0; i < data.size(); ++i) labels.push_back(data.label(i));
  parts.push_back({what + " labels", digest_of(std::as_bytes(std::span(labels))).xxh3_128});
  const std::int64_t samples = std::min(data.size(), decodes ? kSampledFiles : kSampledImages);
  std::vector<std::uint8_t> pixels(shape.size());
  Hasher hasher;
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t index = i * data.size() / samples;
    (void)(trains ? data.read_plain(index, pixels) : data.read(index, pixels));
    hasher.update(std::as_bytes(std::span(pixels)));
  }
  parts.push_back({what + " pixels", hasher.finish().xxh3_128});
}

std::string text_of(const Window2d& w) {
  std::string text = fmt::format("{}x{} stride {} padding {},{},{},{}", w.height, w.width, w.stride.vertical,
                                 w.padding.top, w.padding.left, w.padding.bottom, w.padding.right);
  if (w.plain()) return text;
  return fmt::format("{} stride {} dilation {},{}", text, w.stride.horizontal, w.dilation.vertical,
                     w.dilation.horizontal);
}

// The settings of a layer.
struct LayerText {
  std::string operator()(const InputLayer& /*l*/) const { return "input"; }
  std::string operator()(const ConvLayer& l) const {
    return fmt::format("conv {} {} groups {} bias {}", l.channels, text_of(l.window), l.groups, l.bias);
  }
  std::string operator()(const ConvTransposeLayer& l) const {
    return fmt::format("transposed conv {} {} extra {},{} groups {} bias {}", l.channels, text_of(l.window),
                       l.output_padding.vertical, l.output_padding.horizontal, l.groups, l.bias);
  }
  std::string operator()(const PadLayer& l) const {
    return fmt::format("pad {} {},{},{},{}", static_cast<int>(l.mode), l.padding.top, l.padding.left, l.padding.bottom,
                       l.padding.right);
  }
  std::string operator()(const LinearLayer& l) const { return fmt::format("linear {} bias {}", l.outputs, l.bias); }
  std::string operator()(const BatchNormLayer& l) const {
    return fmt::format("batchnorm {} {} {}", l.epsilon, l.momentum, l.scale);
  }
  std::string operator()(const SampleNormLayer& l) const {
    return fmt::format("samplenorm {} {} {}", to_string(l.over), l.groups, l.epsilon);
  }
  std::string operator()(const ActivationLayer& l) const { return std::string(to_string(l.activation)); }
  std::string operator()(const GeluSpec& l) const { return fmt::format("gelu {}", static_cast<int>(l.form)); }
  std::string operator()(const PointwiseSpec& l) const { return fmt::format("{} {}", to_string(l.function), l.alpha); }
  std::string operator()(const PreluLayer& l) const { return fmt::format("prelu {}", l.shared); }
  std::string operator()(const PoolLayer& l) const {
    if (l.adaptive_height > 0) return fmt::format("adaptive pool {}x{}", l.adaptive_height, l.adaptive_width);
    return fmt::format("pool {} {} counted {}", static_cast<int>(l.kind), text_of(l.window), l.count_padding);
  }
  std::string operator()(const LrnLayer& l) const {
    return fmt::format("lrn {} {} {} {}", l.size, l.alpha, l.beta, l.k);
  }
  std::string operator()(const DropoutLayer& l) const {
    const char* unit = l.unit == DropoutUnit::element ? "" : l.unit == DropoutUnit::channel ? " channels" : " samples";
    return fmt::format("dropout {}{}", l.rate, unit);
  }
  std::string operator()(const AddLayer& /*l*/) const { return "add"; }
  std::string operator()(const ProductLayer& /*l*/) const { return "product"; }
  std::string operator()(const ConcatLayer& /*l*/) const { return "concat"; }
  std::string operator()(const ChannelSelectLayer& l) const {
    return fmt::format("channels {} {} {}", l.first, l.count, l.groups);
  }
  std::string operator()(const FlattenLayer& l) const { return fmt::format("flatten {}", l.channels_last); }
  std::string operator()(const AffineLayer& l) const { return fmt::format("affine {}", l.shift); }
  std::string operator()(const LayerSpec auto& spec) const {
    Description settings;
    spec.describe(settings);
    return std::string(spec.kKind) + settings.text();
  }
};

}  // namespace

Fingerprint options_fingerprint(const Options& options) {
  Fingerprint parts = {{"version", program_version()}, {"command", options.command}};
  for (const OptionSpec& spec : option_table()) {
    if (spec.command_line_only || is_local(spec.key)) continue;
    parts.push_back({fmt::format("--{}", spec.key), spec.get(options).value_or("unset")});
  }
  return parts;
}

Fingerprint options_fingerprint(const std::string& config, bool all) {
  Fingerprint parts;
  std::istringstream lines(config);
  for (std::string line; std::getline(lines, line);) {
    // "KEY = VALUE # HELP", or "# KEY = # HELP" of an option that is not set (dump_config).
    const bool is_set = !line.starts_with('#');
    const std::size_t begin = is_set ? 0 : line.find_first_not_of("# ");
    const std::size_t equals = line.find(" = ");
    if (begin == std::string::npos || equals == std::string::npos || equals <= begin) continue;
    const std::string key = line.substr(begin, equals - begin);
    if (key.find(' ') != std::string::npos || (!all && is_local(key))) continue;
    std::string value = line.substr(equals + 3);
    value.resize(std::min(value.find(" # "), value.size()));
    value.resize(value.find_last_not_of(' ') + 1);
    parts.push_back({"--" + key, is_set ? value : "unset"});
  }
  return parts;
}

Fingerprint data_fingerprint(const DataSets& data, const Normalization& normalization) {
  Fingerprint parts;
  // Data sets in memory are cheap to read; others must decode files.
  const bool decodes = !data.test->fixed();
  add_set("training", *data.train, true, decodes, parts);
  add_set("test", *data.test, false, decodes, parts);
  parts.push_back({"normalisation", fmt::format("(x - [{:.6g}]) / [{:.6g}]", fmt::join(normalization.mean, ", "),
                                                fmt::join(normalization.deviation, ", "))});
  return parts;
}

FingerprintPart network_part(const Graph& graph) {
  std::string text;
  for (const Layer& layer : graph.layers()) {
    text += fmt::format("{} {} [{}] {}\n", layer.name, std::visit(LayerText{}, layer.kind),
                        fmt::join(layer.inputs, ","), shape_of(layer.output));
  }
  for (const Parameter& p : graph.parameters()) {
    text += fmt::format("{} [{}] lr {} decay {} fixed {}\n", p.name, fmt::join(p.shape, ","), p.lr_scale, p.decay_scale,
                        p.fixed);
  }
  for (const Statistic& s : graph.statistics()) text += fmt::format("{} {}\n", s.name, s.channels);
  return {"network", text_hash(text)};
}

FingerprintPart plan_part(const std::string& plan) { return {"plan", text_hash(plan)}; }

FingerprintPart kernels_part(const Backend& backend) { return {"kernels", backend.ops().traits().arithmetic}; }

Fingerprint stored_parts(const Fingerprint& mine, const std::map<std::string, std::string>& stored) {
  Fingerprint parts;
  for (const FingerprintPart& part : mine) {
    const auto found = stored.find(part.name);
    if (found != stored.end()) parts.push_back({part.name, found->second});
  }
  return parts;
}

std::string differences(const Fingerprint& mine, const Fingerprint& other, std::size_t most) {
  std::vector<std::string> texts;
  for (const FingerprintPart& part : mine) {
    const FingerprintPart* same = find(other, part.name);
    if (same == nullptr) {
      texts.push_back(fmt::format("{} {} instead of none", part.name, part.value));
    } else if (same->value != part.value) {
      texts.push_back(fmt::format("{} {} instead of {}", part.name, part.value, same->value));
    }
  }
  for (const FingerprintPart& part : other) {
    if (find(mine, part.name) == nullptr) {
      texts.push_back(fmt::format("{} none instead of {}", part.name, part.value));
    }
  }
  if (texts.size() > most) {
    const std::size_t more = texts.size() - most;
    texts.resize(most);
    texts.push_back(fmt::format("and {} more", more));
  }
  return join(texts);
}

void check_same_on_all_ranks(Communicator& ranks, const Fingerprint& mine, ExitCode code, std::string_view advice) {
  if (ranks.size() == 1) return;
  // Both sides are converted to lines, so that characters that lines cannot represent make no difference.
  const std::string own = to_lines(mine);
  const std::string first = ranks.broadcast_text(own, 0);
  const std::string host = ranks.broadcast_text(host_name(), 0);
  const std::int64_t here = own == first ? 0 : 1;
  std::int64_t lowest = here == 0 ? ranks.size() : ranks.rank();
  ranks.all_reduce(std::span(&lowest, 1), ReduceOp::min);
  if (lowest == ranks.size()) return;
  const auto rank = static_cast<int>(lowest);
  std::int64_t count = here;
  ranks.all_reduce(std::span(&count, 1), ReduceOp::sum);
  const std::string line = ranks.broadcast_text(
      here == 0 ? ""
                : fmt::format("rank {} on host {} has {}, which is rank 0's on host {}{}; {}", rank, host_name(),
                              differences(from_lines(own), from_lines(first)), host,
                              count == 1 ? "" : fmt::format(" ({} ranks differ from it)", count), advice),
      rank);
  // Whose line it is the prefix of a report says: the rank that differs would be named twice.
  throw JointError(code, line, ranks.rank() == 0);
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

namespace {

// A step waits for this. Without a branch for each value, so that the compiler uses vectors.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7F800000U;
  constexpr std::size_t kBlock = 16384;
  while (!values.empty()) {
    const std::span<const float> block = values.first(std::min(kBlock, values.size()));
    std::uint32_t broken = 0;
    for (const float value : block) {
      broken |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
    }
    if (broken != 0) return false;
    values = values.subspan(block.size());
  }
  return true;
}

}  // namespace

std::string first_not_finite(std::span<const TensorView> tensors) {
  for (const TensorView& tensor : tensors) {
    if (!all_finite({tensor.data, tensor.elements()})) return tensor.name;
  }
  return "";
}

}  // namespace ddp
