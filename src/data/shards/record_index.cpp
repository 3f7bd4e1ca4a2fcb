#include "data/shards/record_index.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/status/set_up_progress.h"
#include "base/text/utf8.h"
#include "data/images/parallel.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// The version is part of it.
constexpr std::string_view kIndexMagic = "DDPSHRD1";

class IndexWriter {
 public:
  template <class Number>
  void number(Number value) {
    std::array<char, sizeof(Number)> bytes{};
    std::memcpy(bytes.data(), &value, sizeof(Number));
    text_.append(bytes.data(), bytes.size());
  }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    text_ += value;
  }
  std::string finish() && {
    number(XXH3_64bits(text_.data(), text_.size()));
    return std::move(text_);
  }

 private:
  std::string text_{kIndexMagic};
};

// Reads zeros and empty texts behind the end, which good() then tells.
class IndexReader {
 public:
  explicit IndexReader(std::string_view text) : rest_(text) {}
  template <class Number>
  Number number() {
    Number value{};
    if (const std::string_view bytes = take(sizeof(Number)); !bytes.empty())
      std::memcpy(&value, bytes.data(), sizeof(Number));
    return value;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }
  // The number of elements that follow, of at least `bytes` bytes each.
  std::size_t count(std::size_t bytes) {
    const auto value = number<std::uint64_t>();
    if (value > rest_.size() / bytes) good_ = false;
    return good_ ? static_cast<std::size_t>(value) : 0;
  }
  bool good() const { return good_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) good_ = false;
    if (!good_) return {};
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::string_view rest_;
  bool good_ = true;
};

Shard state_of(const fs::path& path) {
  std::error_code error;
  Shard shard{.path = path};
  shard.bytes = fs::file_size(path, error);
  const auto time = error ? fs::file_time_type() : fs::last_write_time(path, error);
  check(!error, ExitCode::data, "{}: cannot be read: {}; correct --data-dir or --val-dir", escape_name(path.string()),
        error.message());
  shard.time = static_cast<std::int64_t>(time.time_since_epoch().count());
  return shard;
}

fs::path kept_path(const fs::path& folder, const ShardFormat& format, const std::vector<fs::path>& shards) {
  std::string names = format.name;
  std::error_code error;
  for (const fs::path& shard : shards) names += "\n" + fs::weakly_canonical(shard, error).string();
  return folder / fmt::format("{:016x}.index", XXH3_64bits(names.data(), names.size()));
}

std::optional<RecordIndex> kept_index(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    return parse_index(read_text(path, ExitCode::data));
  } catch (const Error& unreadable) {
    log_warning("{}; the shards are indexed again", unreadable.what());
    return std::nullopt;
  }
}

void keep(const fs::path& path, const RecordIndex& index) {
  try {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    replace_file(path, index_text(index), ExitCode::data);
  } catch (const Error& refused) {
    log_warning("{}; the index of the shards is not kept", refused.what());
  }
}

// `index` without the shards that are not as they were; the others by their paths.
std::map<fs::path, RecordIndex> unchanged_shards(const RecordIndex& index, const std::vector<Shard>& now) {
  std::map<fs::path, const Shard*> wanted;
  for (const Shard& shard : now) wanted[shard.path] = &shard;
  std::map<fs::path, RecordIndex> parts;
  std::vector<RecordIndex*> part_of(index.shards.size());
  for (std::size_t i = 0; i < index.shards.size(); ++i) {
    const auto same = wanted.find(index.shards[i].path);
    if (same != wanted.end() && *same->second == index.shards[i]) part_of[i] = &parts[same->first];
  }
  for (auto& [path, part] : parts) part.labels = index.labels;
  for (Record record : index.records) {
    RecordIndex* const part = part_of[static_cast<std::size_t>(std::exchange(record.shard, 0))];
    if (part != nullptr) part->records.push_back(record);
  }
  for (DamagedRecord damage : index.damaged) {
    RecordIndex* const part = part_of[static_cast<std::size_t>(std::exchange(damage.shard, 0))];
    if (part != nullptr) part->damaged.push_back(std::move(damage));
  }
  return parts;
}

RecordIndex joined(std::vector<Shard> shards, const std::vector<RecordIndex>& parts) {
  RecordIndex all{.shards = std::move(shards), .records = {}, .labels = {}, .damaged = {}};
  std::unordered_map<std::string, std::int32_t> labels;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::vector<std::int32_t> label_of(parts[i].labels.size(), -1);
    for (Record record : parts[i].records) {
      std::int32_t& label = label_of[static_cast<std::size_t>(record.label)];
      if (label < 0) {
        const std::string& name = parts[i].labels[static_cast<std::size_t>(record.label)];
        label = labels.emplace(name, static_cast<std::int32_t>(labels.size())).first->second;
        if (static_cast<std::size_t>(label) == all.labels.size()) all.labels.push_back(name);
      }
      record.shard = static_cast<std::int32_t>(i);
      record.label = label;
      all.records.push_back(record);
    }
    for (DamagedRecord damage : parts[i].damaged) {
      damage.shard = static_cast<std::int32_t>(i);
      all.damaged.push_back(std::move(damage));
    }
  }
  return all;
}

bool is_consistent(const RecordIndex& index) {
  const auto shard_fits = [&](std::int32_t shard) {
    return shard >= 0 && static_cast<std::size_t>(shard) < index.shards.size();
  };
  for (const Record& record : index.records) {
    if (!shard_fits(record.shard) || record.label < 0 || static_cast<std::size_t>(record.label) >= index.labels.size())
      return false;
    const std::uint64_t end = index.shards[static_cast<std::size_t>(record.shard)].bytes;
    if (record.offset > end || record.bytes > end - record.offset) return false;
  }
  return std::all_of(index.damaged.begin(), index.damaged.end(),
                     [&](const DamagedRecord& d) { return shard_fits(d.shard); });
}

}  // namespace

RecordIndex open_index(const ShardFormat& format, const std::vector<fs::path>& shards, const IndexSettings& settings) {
  std::vector<Shard> now(shards.size());
  for_each_index(shards.size(), settings.threads, [&](std::size_t i) {
    now[i] = state_of(shards[i]);
    heartbeat();
  });
  const fs::path kept = settings.folder.empty() ? fs::path() : kept_path(settings.folder, format, shards);
  std::map<fs::path, RecordIndex> known;
  if (!kept.empty()) {
    std::optional<RecordIndex> index = kept_index(kept);
    if (index && index->shards == now) return *std::move(index);
    if (index) known = unchanged_shards(*index, now);
  }
  std::vector<RecordIndex> parts(shards.size());
  const SetUpProgress progress("indexing shards", static_cast<std::int64_t>(shards.size()));
  for_each_index(shards.size(), settings.threads, [&](std::size_t i) {
    const auto found = known.find(shards[i]);
    const FileActivity activity("reading " + shards[i].string());
    parts[i] = found != known.end() ? found->second : format.read(shards[i]);
    progress.advance();
  });
  // What changed meanwhile is read again the next time.
  RecordIndex all = joined(std::move(now), parts);
  if (!kept.empty()) keep(kept, all);
  return all;
}

std::string index_text(const RecordIndex& index) {
  IndexWriter writer;
  writer.number(static_cast<std::uint64_t>(index.shards.size()));
  for (const Shard& shard : index.shards) {
    writer.text(shard.path.string());
    writer.number(shard.bytes);
    writer.number(shard.time);
  }
  writer.number(static_cast<std::uint64_t>(index.labels.size()));
  for (const std::string& label : index.labels) writer.text(label);
  writer.number(static_cast<std::uint64_t>(index.damaged.size()));
  for (const DamagedRecord& damage : index.damaged) {
    writer.number(damage.shard);
    writer.number(damage.offset);
    writer.text(damage.reason);
  }
  writer.number(static_cast<std::uint64_t>(index.records.size()));
  for (const Record& record : index.records) {
    writer.number(record.offset);
    writer.number(record.bytes);
    writer.number(record.shard);
    writer.number(record.label);
  }
  return std::move(writer).finish();
}

std::optional<RecordIndex> parse_index(std::string_view text) {
  constexpr std::size_t kHash = sizeof(XXH64_hash_t);
  if (!text.starts_with(kIndexMagic) || text.size() < kIndexMagic.size() + kHash) return std::nullopt;
  const std::string_view hashed = text.substr(0, text.size() - kHash);
  if (IndexReader(text.substr(hashed.size())).number<XXH64_hash_t>() != XXH3_64bits(hashed.data(), hashed.size())) {
    return std::nullopt;
  }
  IndexReader reader(hashed.substr(kIndexMagic.size()));
  RecordIndex index;
  index.shards.resize(reader.count(24));
  for (Shard& shard : index.shards) {
    shard.path = reader.text();
    shard.bytes = reader.number<std::uint64_t>();
    shard.time = reader.number<std::int64_t>();
  }
  index.labels.resize(reader.count(8));
  for (std::string& label : index.labels) label = reader.text();
  index.damaged.resize(reader.count(20));
  for (DamagedRecord& damage : index.damaged) {
    damage.shard = reader.number<std::int32_t>();
    damage.offset = reader.number<std::uint64_t>();
    damage.reason = reader.text();
  }
  index.records.resize(reader.count(20));
  for (Record& record : index.records) {
    record.offset = reader.number<std::uint64_t>();
    record.bytes = reader.number<std::uint32_t>();
    record.shard = reader.number<std::int32_t>();
    record.label = reader.number<std::int32_t>();
  }
  if (!reader.good() || !reader.at_end() || !is_consistent(index)) return std::nullopt;
  return index;
}

}  // namespace ddp
