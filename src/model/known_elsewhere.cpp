#include "model/known_elsewhere.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace ddp {
namespace {

// Without separators and in lower case.
constexpr auto kPlain = std::to_array<std::string_view>(
    {"convformer",  "convmixer",      "convnext",   "cs3darknet",  "cs3edgenet",   "cs3se",      "cspdarknet",
     "cspresnet",   "cspresnext",     "darknet",    "densenet",    "dla",          "dmnfnet",    "dpn",
     "ecanfnet",    "ecaresnet",      "ecaresnext", "ecavovnet",   "efficientnet", "esevovnet",  "fbnet",
     "focalnet",    "gernet",         "ghostnet",   "gluon",       "gmixer",       "gmlp",       "googlenet",
     "hardcorenas", "hgnet",          "hrnet",      "inception",   "lcnet",        "legacyse",   "mambaout",
     "mixer",       "mixnet",         "mnasnet",    "mobilenet",   "mobileone",    "nasnet",     "nfecaresnet",
     "nfnet",       "nfregnet",       "nfresnet",   "nfseresnet",  "pnasnet",      "poolformer", "rdnet",
     "regnet",      "repghost",       "repvgg",     "repvit",      "res2net",      "res2next",   "resmlp",
     "resnest",     "resnet101",      "resnet10t",  "resnet14t",   "resnet152",    "resnet18d",  "resnet200",
     "resnet26",    "resnet32ts",     "resnet33ts", "resnet34d",   "resnet50c",    "resnet50d",  "resnet50gn",
     "resnet50s",   "resnet50t",      "resnet50v2", "resnet51q",   "resnet61q",    "resnetaa",   "resnetblur",
     "resnetrs",    "resnetv2",       "resnext",    "rexnet",      "selecsls",     "semnasnet",  "senet",
     "seresnet",    "seresnext",      "shufflenet", "skresnet",    "skresnext",    "spnasnet",   "squeezenet",
     "starnet",     "tfefficientnet", "tfmixnet",   "tfmobilenet", "tinynet",      "tresnet",    "vgg",
     "vovnet",      "wideresnet",     "xception"});

constexpr auto kWithAttention = std::to_array<std::string_view>(
    {"aimv2",        "bat",       "beit",      "botnet",   "caformer",    "cait",     "coat",
     "coatnet",      "coatnext",  "swinv2",    "beitv2",   "mvitv2",      "convit",   "cotnet",
     "crossvit",     "davit",     "deit",      "dinov",    "ecabotnext",  "edgenext", "efficientformer",
     "efficientvit", "eva",       "fastvit",   "flexivit", "gcvit",       "halonet",  "haloregnet",
     "hiera",        "lambda",    "lamhalo",   "levit",    "maxvit",      "maxxvit",  "mobilevit",
     "mvit",         "naflexvit", "nest",      "nextvit",  "pit",         "pvt",      "sam2",
     "samvit",       "sebotnet",  "sequencer", "shvit",    "swiftformer", "swin",     "tinyvit",
     "tnt",          "twins",     "visformer", "vit",      "volo",        "xcit"});

bool is_separator(char c) { return c == '-' || c == '_' || c == '.'; }

std::string squashed(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (!is_separator(c)) text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// Whether a name begins so, whatever separates its parts; short names are no words that happen to begin so.
bool belongs(std::string_view name, std::string_view family) {
  constexpr std::size_t kShort = 4;
  std::size_t at = 0;
  for (const char letter : family) {
    while (at < name.size() && is_separator(name[at])) ++at;
    if (at == name.size() || std::tolower(static_cast<unsigned char>(name[at])) != letter) return false;
    ++at;
  }
  if (family.size() > kShort || at == name.size()) return true;
  return std::isalpha(static_cast<unsigned char>(name[at])) == 0 || family == "vit";
}

}  // namespace

std::optional<ElsewhereModel> known_elsewhere(std::string_view name) {
  // "timm/resnet50d.ra2_in1k"
  name.remove_prefix(name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1);
  const auto is_in = [&](const auto& families) {
    return std::any_of(families.begin(), families.end(), [&](std::string_view each) { return belongs(name, each); });
  };
  if (is_in(kWithAttention)) return ElsewhereModel{.attention = true};
  if (is_in(kPlain)) return ElsewhereModel{.attention = false};
  return std::nullopt;
}

bool same_name(std::string_view a, std::string_view b) { return squashed(a) == squashed(b); }

}  // namespace ddp
