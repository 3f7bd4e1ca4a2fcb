#include "explain/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "explain/chart.h"
#include "options/parse.h"

namespace ddp {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--dim:#59636e;--line:#d1d9e0;--card:#f6f8fa;--heat:#0969da;
--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#9a6700;--c6:#0f7b8a;--c7:#59636e}
@media(prefers-color-scheme:dark){:root{--page:#0d1117;--text:#e6edf3;--dim:#9198a1;--line:#3d444d;--card:#151b23;
--heat:#4493f8;--c0:#4493f8;--c1:#f0883e;--c2:#3fb950;--c3:#ab7df8;--c4:#f778ba;--c5:#d29922;--c6:#39c5cf;--c7:#9198a1}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1360px;padding:1rem;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,sans-serif}h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid
var(--line)}.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:1rem}
figure{margin:0;padding:.5rem;background:var(--card);border:1px solid var(--line);border-radius:6px}
figcaption{font-weight:600}svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font-size:12px}
svg .small{font-size:11px}svg .on{fill:var(--page)}svg .off{fill:var(--text)}.grid{stroke:var(--line)}.line{fill:none;
stroke-width:2}.heat{fill:var(--heat);stroke:var(--line);stroke-width:.3}.legend{list-style:none;margin:.3rem 0 0;padding:0;
display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem}.key{display:inline-block;width:.8em;height:.8em;
margin-right:.4em;border-radius:2px}pre{overflow-x:auto;white-space:pre-wrap;background:var(--card);border:1px solid
var(--line);border-radius:6px;padding:.7rem;font-size:.85rem}.scroll{overflow-x:auto}table{border-collapse:collapse;
font-size:.9rem}th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);
vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}
@media(max-width:600px){svg text{font-size:17px}svg .small{font-size:12px}}
@media print{body{max-width:none;padding:0}figure,pre{break-inside:avoid}:root{color-scheme:light}}
)";

std::string style() {
  std::string text(kStyle);
  for (int i = 0; i < 8; ++i) {
    text += fmt::format(".s{0}{{stroke:var(--c{0})}}.k{0}{{background:var(--c{0})}}.f{0}{{fill:var(--c{0})}}\n", i);
  }
  // Dashes distinguish lines without colours.
  return text + ".s1{stroke-dasharray:7 3}.s2{stroke-dasharray:2 3}.s3{stroke-dasharray:9 3 2 3}\n";
}

using Value = double (*)(const TrainRecord&);

std::string training_curve(std::span<const ReportedRun> runs, const std::string& title, Value value, bool from_zero) {
  LineChart chart{title, "step", {}, from_zero};
  for (const ReportedRun& run : runs) {
    Series series{run.name, {}};
    for (const TrainRecord& record : run.history.training) {
      series.points.emplace_back(static_cast<double>(record.step), value(record));
    }
    chart.series.push_back(std::move(series));
  }
  return line_chart(chart);
}

std::string evaluation_curve(std::span<const ReportedRun> runs, const std::string& title,
                             double (*value)(const EvalRecord&)) {
  LineChart chart{title, "step", {}};
  for (const ReportedRun& run : runs) {
    Series series{run.name, {}};
    for (const EvalRecord& record : run.history.evaluations) {
      series.points.emplace_back(static_cast<double>(record.step), value(record));
    }
    chart.series.push_back(std::move(series));
  }
  return line_chart(chart);
}

std::string curves(std::span<const ReportedRun> runs) {
  std::string html = "<h2>Curves</h2><div class='charts'>";
  html += training_curve(
      runs, "training loss", [](const TrainRecord& r) { return r.loss; }, false);
  html += evaluation_curve(runs, "loss on the test set", [](const EvalRecord& r) { return r.val_loss; });
  html += evaluation_curve(runs, "accuracy on the test set, percent",
                           [](const EvalRecord& r) { return 100 * r.val_accuracy; });
  html += evaluation_curve(runs, "top-5 accuracy on the test set, percent",
                           [](const EvalRecord& r) { return 100 * r.top5_accuracy.value_or(std::nan("")); });
  html += training_curve(
      runs, "learning rate", [](const TrainRecord& r) { return r.lr; }, true);
  html += training_curve(
      runs, "gradient norm", [](const TrainRecord& r) { return r.grad_norm; }, true);
  html += training_curve(
      runs, "images per second", [](const TrainRecord& r) { return r.images_per_second; }, true);
  html += training_curve(
      runs, "share of the devices' peak, percent",
      [](const TrainRecord& r) { return 100 * r.mfu.value_or(std::nan("")); }, true);
  return html + "</div>";
}

std::string phases_over_time(const ReportedRun& run) {
  StackChart chart{fmt::format("time of rank 0 by phase, milliseconds per step: {}", run.name), "step", {}, {}};
  for (const Phase phase : kPhases) chart.parts.push_back(phase_label(phase));
  std::int64_t before = 0;
  for (const TrainRecord& record : run.history.training) {
    const double steps = static_cast<double>(std::max<std::int64_t>(1, record.step - before));
    before = record.step;
    std::vector<double> values;
    for (const Phase phase : kPhases) values.push_back(record.phases[phase] / steps * 1e3);
    chart.columns.emplace_back(static_cast<double>(record.step), std::move(values));
  }
  return stack_chart(chart);
}

std::string ranks_by_phase(const ReportedRun& run) {
  if (!run.timing) return "";
  HeatMap map{fmt::format("share of each rank's time by phase: {}", run.name), {}, {}, {}};
  for (const Phase phase : kPhases) {
    map.columns.push_back(phase == Phase::exposed_communication ? "communic." : phase_label(phase));
  }
  for (std::size_t rank = 0; rank < run.timing->ranks.size(); ++rank) {
    const PhaseTotals& phases = run.timing->ranks[rank].phases;
    map.rows.push_back(fmt::format("{} {}", rank, run.timing->facts.hosts[rank].substr(0, 12)));
    std::vector<double> row;
    for (const Phase phase : kPhases) row.push_back(phases.sum() > 0 ? std::max(0.0, phases[phase]) / phases.sum() : 0);
    map.values.push_back(std::move(row));
  }
  return heat_map(map);
}

std::string confusion(const ReportedRun& run) {
  if (run.history.evaluations.empty() || run.history.evaluations.back().confusion.empty()) return "";
  const EvalRecord& last = run.history.evaluations.back();
  HeatMap map{
      fmt::format("confusion matrix after step {}, true class by row, answer by column: {}", last.step, run.name),
      {},
      {},
      {},
      false};
  for (std::size_t c = 0; c < last.confusion.size(); ++c) {
    const double accuracy = c < last.class_accuracy.size() ? last.class_accuracy[c] : std::nan("");
    map.rows.push_back(std::isfinite(accuracy) ? fmt::format("{} ({:.1f}%)", c, accuracy * 100) : fmt::format("{}", c));
    map.columns.push_back(std::to_string(c));
    map.values.emplace_back(last.confusion[c].begin(), last.confusion[c].end());
  }
  return heat_map(map);
}

std::string summary(std::span<const ReportedRun> runs) {
  std::string html =
      "<div class='scroll'><table><thead><tr><th scope='col'>run</th><th scope='col'>model</th><th "
      "scope='col'>ranks</th>"
      "<th scope='col'>steps</th><th scope='col'>best accuracy</th><th scope='col'>images/s</th><th "
      "scope='col'>verdict</th></tr></thead><tbody>";
  for (const ReportedRun& run : runs) {
    double best = -1;
    for (const EvalRecord& each : run.history.evaluations) best = std::max(best, each.val_accuracy);
    const bool timed = run.timing && run.timing->ranks[0].steps > 0;
    const std::int64_t steps = run.history.training.empty() ? 0 : run.history.training.back().step;
    html += fmt::format(
        "<tr><th scope='row'>{}</th><td>{}, {}</td><td class='n'>{}</td><td class='n'>{}</td><td class='n'>{}</td><td "
        "class='n'>{}</td><td>{}</td></tr>",
        html_text(run.name), html_text(run.options.model.model), html_text(run.options.data.dataset),
        run.timing ? std::to_string(run.timing->ranks.size()) : "", steps,
        best < 0 ? "" : fmt::format("{:.2f}%", best * 100),
        timed ? fmt::format("{:.0f}", explain(*run.timing, run.options).images_per_second) : "",
        timed ? cause_name(explain(*run.timing, run.options).cause) : "not measured");
  }
  return html + "</tbody></table></div>";
}

std::string verdicts(std::span<const ReportedRun> runs) {
  std::string html;
  for (const ReportedRun& run : runs) {
    if (!run.timing || run.timing->ranks[0].steps == 0) continue;
    html += fmt::format("<h3>{}</h3><pre>{}</pre>", html_text(run.name),
                        html_text(describe(explain(*run.timing, run.options))));
  }
  return html.empty() ? "" : "<h2>What limits the speed</h2>" + html;
}

// The options that differ between the runs; of a single run all of them.
std::string configurations(std::span<const ReportedRun> runs) {
  std::set<std::string> keys;
  for (const ReportedRun& run : runs) {
    for (const auto& [key, value] : run.config) keys.insert(key);
  }
  const auto value_of = [](const ReportedRun& run, const std::string& key) {
    const auto found = run.config.find(key);
    return found == run.config.end() ? std::string() : found->second;
  };
  std::string rows;
  for (const std::string& key : keys) {
    const std::string first = value_of(runs[0], key);
    const bool same =
        std::all_of(runs.begin(), runs.end(), [&](const auto& run) { return value_of(run, key) == first; });
    if (runs.size() > 1 && same) continue;
    rows += fmt::format("<tr><th scope='row'>--{}</th>", html_text(key));
    for (const ReportedRun& run : runs) rows += fmt::format("<td>{}</td>", html_text(value_of(run, key)));
    rows += "</tr>";
  }
  std::string head;
  for (const ReportedRun& run : runs) head += fmt::format("<th scope='col'>{}</th>", html_text(run.name));
  const char* title = runs.size() > 1 ? "Options that differ" : "Options";
  if (rows.empty()) return fmt::format("<h2>{}</h2><p>none</p>", title);
  return fmt::format(
      "<h2>{}</h2><div class='scroll'><table><thead><tr><th "
      "scope='col'>option</th>{}</tr></thead><tbody>{}</tbody></table>"
      "</div>",
      title, head, rows);
}

// The lines `key = value` of a configuration file, without comments.
std::map<std::string, std::string> settings_of(const std::string& text) {
  std::map<std::string, std::string> settings;
  std::istringstream lines(text);
  const auto trimmed = [](std::string value) {
    value.erase(0, value.find_first_not_of(" \t"));
    value.erase(value.find_last_not_of(" \t") + 1);
    return value;
  };
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) settings[trimmed(line.substr(0, equals))] = trimmed(line.substr(equals + 1));
  }
  return settings;
}

}  // namespace

ReportedRun read_reported_run(const std::filesystem::path& folder) {
  ReportedRun run;
  run.name = folder.lexically_normal().string();
  run.history = read_history(folder);
  const std::filesystem::path config = folder / "config.cfg";
  run.config = settings_of(read_text(config, ExitCode::checkpoint, std::uint64_t{1} << 20U));
  const std::string name = config.string();
  const std::vector<const char*> arguments = {"--config", name.c_str()};
  run.options = parse_options(arguments);
  std::error_code error;
  if (std::filesystem::exists(folder / "timing.json", error)) run.timing = read_timing(folder);
  return run;
}

std::string report(std::span<const ReportedRun> runs) {
  std::string title = "ddp_train: ";
  for (std::size_t i = 0; i < runs.size(); ++i) title += (i > 0 ? ", " : "") + runs[i].name;
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width,initial-scale=1'><title>{0}</title><style>{1}</style></head>\n<body><main><h1>{0}</"
      "h1>\n",
      html_text(title), style());
  html += summary(runs) + "\n" + verdicts(runs) + "\n" + curves(runs) + "\n<h2>Time</h2><div class='charts'>";
  for (const ReportedRun& run : runs) html += phases_over_time(run) + ranks_by_phase(run) + "\n";
  html += "</div>";
  std::string matrices;
  for (const ReportedRun& run : runs) matrices += confusion(run);
  if (!matrices.empty()) html += "<h2>Classes</h2><div class='charts'>" + matrices + "</div>\n";
  return html + configurations(runs) + "</main></body></html>\n";
}

}  // namespace ddp
