#include "onnx/importer/names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text/text.h"

namespace ddp {
namespace {

// Words at the end of a name that describe the kind of a tensor or operation, not the layer it belongs to.
constexpr std::array<std::string_view, 24> kRoles = {"weight",    "weights",
                                                     "kernel",    "gamma",
                                                     "scale",     "W",
                                                     "w",         "ReadVariableOp",
                                                     "Conv2D",    "MatMul",
                                                     "BiasAdd",   "Gemm",
                                                     "Conv",      "fused",
                                                     "read",      "Cast",
                                                     "Reshape",   "FusedBatchNormV3",
                                                     "depthwise", "Add",
                                                     "Identity",  "BatchNormalization",
                                                     "Transpose", "transpose"};

bool is_role(std::string_view word) {
  // "ReadVariableOp_1", "Conv2D__12".
  const std::size_t end = word.find_last_not_of("0123456789");
  if (end != std::string_view::npos && word[end] == '_') word = word.substr(0, word.find_last_not_of('_', end) + 1);
  return std::find(kRoles.begin(), kRoles.end(), word) != kRoles.end();
}

// The components of a slash-separated name; "layer1/layer1.0" is one component, because PyTorch writes scopes in full.
std::vector<std::string> steps_of(std::string_view name) {
  std::vector<std::string> steps;
  while (!name.empty()) {
    const std::size_t slash = std::min(name.find('/'), name.size());
    std::string step(name.substr(0, slash));
    name.remove_prefix(std::min(slash + 1, name.size()));
    if (step.empty() || step == "StatefulPartitionedCall" || step == "PartitionedCall") continue;
    if (!steps.empty() && step.starts_with(steps.back() + ".")) steps.pop_back();
    steps.push_back(std::move(step));
  }
  return steps;
}

// Letters, digits, '.', '_' and '-' remain.
std::string clean(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const bool keeps = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
    if (keeps || (!text.empty() && text.back() != '_')) text += keeps ? c : '_';
  }
  while (!text.empty() && (text.back() == '_' || text.back() == '.')) text.pop_back();
  while (!text.empty() && (text.front() == '_' || text.front() == '.')) text.erase(0, 1);
  return text;
}

std::string without_roles(std::string_view name) {
  name = name.substr(0, name.find(':'));
  std::vector<std::string> steps = steps_of(name);
  while (!steps.empty() && is_role(steps.back())) steps.pop_back();
  if (!steps.empty()) {
    std::string& last = steps.back();
    const std::size_t cut = last.find_last_of("._");
    if (cut != std::string::npos && is_role(last.substr(cut + 1))) last.resize(cut);
  }
  return clean(join(steps, "."));
}

// The bytes that follow the first one of a character, 0 to 3; nullopt if `next` cannot follow `byte` in UTF-8.
std::optional<int> bytes_after(unsigned byte, unsigned next) {
  if (byte < 0x80) return 0;
  // The second byte of characters that could be written shorter, surrogates and numbers beyond Unicode is out of range.
  const unsigned low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  const unsigned high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  if (byte < 0xC2 || byte > 0xF4 || next < low || next > high) return std::nullopt;
  return byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
}

// Whether it is UTF-8 without control characters.
bool is_plain_text(std::string_view text) {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (at(i) < 0x20 || at(i) == 0x7F || (at(i) == 0xC2 && at(i + 1) < 0xA0)) return false;
    const std::optional<int> after = bytes_after(at(i), at(i + 1));
    if (!after) return false;
    for (int k = 0; k < *after; ++k) {
      if ((at(++i) & 0xC0U) != 0x80U) return false;
    }
  }
  return true;
}

}  // namespace

bool is_made_up(std::string_view name) {
  if (name.empty() || name.find("::") != std::string_view::npos) return true;
  for (const std::string_view prefix : {"val_", "const_", "const.", "_val_", "new_", "getitem", "/"}) {
    if (name.starts_with(prefix)) return true;
  }
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '_'; });
}

bool is_generated(std::string_view name) {
  const auto numbered = [](std::string_view text, std::string_view separator) {
    const std::size_t cut = text.rfind(separator);
    return cut != std::string_view::npos && cut + separator.size() < text.size() &&
           text.find_first_not_of("0123456789", cut + separator.size()) == std::string_view::npos;
  };
  if (name.starts_with("onnx::") && numbered(name, "_")) return true;
  if (name.starts_with("const_fold_opt__") && numbered(name, "__")) return true;
  // TensorFlow's.
  return name.find('/') != std::string_view::npos &&
         (numbered(name, ":") || name.find("/ReadVariableOp") != std::string_view::npos);
}

bool is_storable(std::string_view name) {
  constexpr std::size_t kLongest = 1024;
  return !name.empty() && name.size() <= kLongest && name != "__metadata__" && is_plain_text(name);
}

std::string shown(std::string_view text) {
  if (is_plain_text(text)) return std::string(text);
  std::string result;
  for (const char c : text) {
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

std::string LayerNames::choose(const std::string& weight, const OnnxNode& node) {
  // A name of several parts is that of a module's tensor, whatever its parts are called.
  const bool unnamed = older_ || weight.find('.') == std::string::npos ? is_made_up(weight) : is_generated(weight);
  std::string base = unnamed ? "" : without_roles(weight);
  // A node named after its output has no meaningful name.
  const bool own = !node.outputs.empty() && node.name != node.outputs[0];
  if (base.empty() && own) base = without_roles(node.name);
  if (base.empty()) base = lower_case(clean(node.type));
  constexpr std::size_t kLongest = 200;
  if (base.size() > kLongest) base.resize(kLongest);
  std::string name = base;
  for (int n = 2; !taken_.insert(name).second; ++n) name = base + "_" + std::to_string(n);
  return name;
}

}  // namespace ddp
