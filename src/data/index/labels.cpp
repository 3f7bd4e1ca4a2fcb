#include "data/index/labels.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/status/heartbeat.h"
#include "base/text/csv.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "data/images/parallel.h"
#include "data/index/class_order.h"
#include "data/index/split.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// What other programs call the columns, in lower case.
constexpr std::array<std::string_view, 7> kPathNames = {"path",       "filename", "file",     "image",
                                                        "image_path", "filepath", "file_name"};
constexpr std::array<std::string_view, 4> kLabelNames = {"label", "class", "category", "target"};
constexpr std::array<std::string_view, 3> kEvaluationNames = {"val", "valid", "validation"};
constexpr const char* kSplitName = "split";
constexpr const char* kGroupName = "group";

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The lines that are wrong: the first one is named.
class Problems {
 public:
  explicit Problems(fs::path list) : list_(std::move(list)) {}

  void add(std::int64_t line, const std::string& text) {
    if (count_++ == 0 || line < line_) {
      line_ = line;
      text_ = text;
    }
  }
  void throw_any() const {
    if (count_ == 0) return;
    throw Error(ExitCode::data, fmt::format("{}: line {}: {}{}", escape_name(list_.string()), line_, text_,
                                            count_ == 1 ? "" : fmt::format(" ({} such lines in all)", count_)));
  }

 private:
  fs::path list_;
  std::int64_t count_ = 0;
  std::int64_t line_ = 0;
  std::string text_;
};

struct ListEntry {
  std::int64_t line = 0;
  std::string path;
  std::string label;
  std::string split;
  std::string group;
};

struct Columns {
  std::optional<std::size_t> path, label, split, group;
};

// Nothing if the first line has no names.
std::optional<Columns> columns_of(const fs::path& list, const CsvRow& head, const std::string& group_column) {
  Columns columns;
  std::vector<std::string> unknown;
  const std::string group = lower_case(group_column.empty() ? kGroupName : group_column);
  for (std::size_t i = 0; i < head.cells.size(); ++i) {
    const std::string name = lower_case(trimmed(head.cells[i]));
    if (name == group) {
      columns.group = i;
    } else if (!columns.path && is_one_of(name, kPathNames)) {
      columns.path = i;
    } else if (!columns.label && is_one_of(name, kLabelNames)) {
      columns.label = i;
    } else if (name == kSplitName) {
      columns.split = i;
    } else if (name != kGroupName) {
      unknown.push_back("'" + escape_name(trimmed(head.cells[i])) + "'");
    }
  }
  if (!columns.path && !columns.label) return std::nullopt;
  const std::string shown = escape_name(list.string());
  check(columns.path && columns.label, ExitCode::data,
        "{}: line 1 names no column {}; the columns are path, label, split and group", shown,
        columns.path ? "label" : "path");
  check(group_column.empty() || columns.group, ExitCode::usage, "--split-group {}: {} has no such column", group_column,
        shown);
  check(unknown.empty(), ExitCode::data,
        "{}: line 1 has the unknown column {}{}; the columns are path, label, split and group (or what --split-group "
        "names); "
        "remove it",
        shown, unknown.empty() ? "" : unknown.front(),
        unknown.size() > 1 ? fmt::format(" and {} more", unknown.size() - 1) : "");
  return columns;
}

std::vector<ListEntry> entries_of_table(const std::vector<CsvRow>& rows, const Columns& columns, Problems& problems) {
  std::vector<ListEntry> entries;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const CsvRow& row = rows[i];
    if (row.cells.size() != rows[0].cells.size()) {
      problems.add(row.line, fmt::format("has {} cells, but line 1 has {}; put names with commas in quotes",
                                         row.cells.size(), rows[0].cells.size()));
      continue;
    }
    const auto cell = [&](const std::optional<std::size_t>& column) {
      return column ? trimmed(row.cells[*column]) : "";
    };
    entries.push_back(
        {row.line, cell(columns.path), cell(columns.label), lower_case(cell(columns.split)), cell(columns.group)});
  }
  return entries;
}

// Caffe's: the label is what stands behind the last blank.
std::vector<ListEntry> entries_of_lines(const std::vector<CsvRow>& rows, Problems& problems) {
  std::vector<ListEntry> entries;
  for (const CsvRow& row : rows) {
    const std::string text = trimmed(row.cells[0]);
    const std::size_t blank = text.find_last_of(" \t");
    if (blank == std::string::npos) {
      problems.add(row.line,
                   fmt::format("'{}' is not a path and a label with a blank between them", escape_name(text)));
      continue;
    }
    entries.push_back({row.line, trimmed(text.substr(0, blank)), text.substr(blank + 1), "", ""});
  }
  return entries;
}

std::vector<ListEntry> read_entries(const fs::path& list, const std::string& group_column, bool& divided, bool& grouped,
                                    Problems& problems) {
  const std::string text = read_text(list, ExitCode::data);
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  const bool tabs = first.find('\t') != std::string_view::npos;
  const bool table = tabs || first.find(',') != std::string_view::npos;
  const std::vector<CsvRow> rows = csv_rows(text, tabs ? '\t' : table ? ',' : '\0');
  const std::string shown = escape_name(list.string());
  check(!rows.empty(), ExitCode::data, "{}: is empty; it should have a line path,label and one for each image", shown);
  if (table) {
    if (const std::optional<Columns> columns = columns_of(list, rows[0], group_column)) {
      divided = columns->split.has_value();
      grouped = columns->group.has_value();
      return entries_of_table(rows, *columns, problems);
    }
    check(tabs && rows[0].cells.size() == 2, ExitCode::data,
          "{}: line 1 names no columns; the first line should be path,label, with split and group if there are any",
          shown);
    std::vector<CsvRow> lines = rows;
    for (CsvRow& row : lines) row.cells = {join(row.cells, "\t")};
    return entries_of_lines(lines, problems);
  }
  check(group_column.empty(), ExitCode::usage, "--split-group {}: {} has no columns", group_column, shown);
  return entries_of_lines(rows, problems);
}

void check_single(const std::vector<ListEntry>& entries, Problems& problems) {
  for (const ListEntry& entry : entries) {
    if (entry.label.find(';') == std::string::npos) continue;
    problems.add(entry.line, fmt::format("'{}' are several labels, but an image has one", escape_name(entry.label)));
  }
}

// The folder at which relative paths begin.
fs::path root_of(const fs::path& list, const fs::path& data_dir, const std::vector<ListEntry>& entries) {
  std::error_code error;
  const auto relative = std::find_if(entries.begin(), entries.end(),
                                     [](const ListEntry& entry) { return !fs::path(entry.path).is_absolute(); });
  if (relative == entries.end() || fs::exists(data_dir / relative->path, error)) return data_dir;
  const fs::path beside = list.parent_path().empty() ? "." : list.parent_path();
  return fs::exists(beside / relative->path, error) ? beside : data_dir;
}

// Appends named pipes and the like to `special`.
void check_files(const fs::path& root, const std::vector<ListEntry>& entries, int threads, FolderSplit& split,
                 Problems& problems) {
  std::vector<fs::file_type> types(entries.size());
  for_each_index(entries.size(), threads, [&](std::size_t i) {
    std::error_code error;
    types[i] = fs::status(root / entries[i].path, error).type();
    heartbeat();
  });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const fs::path path = root / entries[i].path;
    if (types[i] == fs::file_type::not_found || types[i] == fs::file_type::none) {
      problems.add(entries[i].line,
                   fmt::format("{} does not exist; correct the path, or remove the line", escape_name(path.string())));
    } else if (types[i] == fs::file_type::directory) {
      problems.add(entries[i].line, fmt::format("{} is a folder, not an image", escape_name(path.string())));
    } else if (const char* kind = special_kind(types[i])) {
      split.special.push_back({path, kind});
    }
  }
}

// Which part a word of the column names; the third set is read if there is no other for evaluation.
std::string parts_by_column(const std::vector<ListEntry>& entries, FolderListing& listing, Problems& problems) {
  std::string parts;
  for (const ListEntry& entry : entries) {
    const bool evaluates = is_one_of(entry.split, kEvaluationNames);
    if (!evaluates && entry.split != "train" && entry.split != "test") {
      problems.add(entry.line, fmt::format("the split '{}' is none of train, val and test", escape_name(entry.split)));
    }
    parts += evaluates ? kEvaluates : entry.split == "test" ? kTests : kTrains;
  }
  if (parts.find(kEvaluates) == std::string::npos) {
    std::replace(parts.begin(), parts.end(), kTests, kEvaluates);
  } else if (parts.find(kTests) != std::string::npos) {
    listing.unused.emplace_back("test");
  }
  return parts;
}

void check_labels(const std::vector<ListEntry>& entries, const std::map<std::string, std::int32_t>& labels,
                  Problems& problems) {
  std::unordered_map<std::string, const ListEntry*> seen;
  for (const ListEntry& entry : entries) {
    if (entry.path.empty() || entry.label.empty()) {
      problems.add(entry.line, entry.path.empty() ? "has no path" : "has no label");
    } else if (!labels.contains(entry.label)) {
      problems.add(entry.line, fmt::format("the class '{}' is not in {}", escape_name(entry.label), kClassesFile));
    }
    const auto [found, added] = seen.emplace(entry.path, &entry);
    if (added) continue;
    problems.add(entry.line, fmt::format("{} is in line {} already{}", escape_name(entry.path), found->second->line,
                                         found->second->label == entry.label ? "" : ", with another label"));
  }
}

}  // namespace

LabelList read_labels(const fs::path& list, const fs::path& data_dir, const std::string& group_column, int threads) {
  Problems problems(list);
  bool divided = false;
  bool grouped = false;
  const std::vector<ListEntry> entries = read_entries(list, group_column, divided, grouped, problems);
  check_single(entries, problems);
  problems.throw_any();
  check(!entries.empty(), ExitCode::data, "{}: has no image, only names of columns; add a line for each image",
        escape_name(list.string()));
  LabelList result;
  FolderListing& listing = result.listing;
  std::set<std::string> names;
  for (const ListEntry& entry : entries) names.insert(entry.label);
  listing.classes = class_order({list.parent_path(), data_dir}, names);
  std::map<std::string, std::int32_t> labels;
  for (const std::string& name : listing.classes) labels.emplace(name, static_cast<std::int32_t>(labels.size()));
  check_labels(entries, labels, problems);
  problems.throw_any();
  listing.train.folder = root_of(list, data_dir, entries);
  check_files(listing.train.folder, entries, threads, listing.train, problems);
  problems.throw_any();
  if (divided) result.parts = parts_by_column(entries, listing, problems);
  problems.throw_any();
  std::vector<std::int64_t> counts(listing.classes.size());
  for (const ListEntry& entry : entries) {
    const std::int32_t label = labels.at(entry.label);
    ++counts[static_cast<std::size_t>(label)];
    listing.train.files.push_back({entry.path, label});
    if (grouped) result.groups.push_back(entry.group);
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    check(counts[i] > 0, ExitCode::data, "{}: the class '{}' of {} has no image; add some, or remove the class",
          escape_name(list.string()), escape_name(listing.classes[i]), kClassesFile);
  }
  return result;
}

}  // namespace ddp
