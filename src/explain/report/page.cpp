#include "explain/report/page.h"

#include <fmt/core.h>

#include <string_view>

#include "explain/report/chart.h"

namespace ddp {
namespace {

// Text has a contrast of at least 4.5:1 to what is behind it in both themes (WCAG 2.1, 1.4.3); the cells of heat maps are
// at most kMostHeat of the colour, so that one colour of text is readable on all.
constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--dim:#59636e;--line:#d1d9e0;--card:#f6f8fa;--heat:#0969da;
--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#9a6700;--c6:#0f7b8a;--c7:#59636e}
@media(prefers-color-scheme:dark){:root{--page:#0d1117;--text:#e6edf3;--dim:#9198a1;--line:#3d444d;--card:#151b23;
--heat:#4493f8;--c0:#4493f8;--c1:#f0883e;--c2:#3fb950;--c3:#ab7df8;--c4:#f778ba;--c5:#d29922;--c6:#39c5cf;--c7:#9198a1}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1360px;padding:1rem;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.2rem;margin-top:2rem;
border-bottom:1px solid var(--line)}h3{font-size:1rem;overflow-wrap:anywhere}.dim{color:var(--dim);font-size:.9rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:1rem;margin:1rem 0}
figure{margin:0;padding:.5rem;background:var(--card);border:1px solid var(--line);border-radius:6px}
figcaption{font-weight:600}svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font-size:12px}
svg .small{font-size:11px}svg .on{fill:var(--text)}.grid{stroke:var(--line)}.line{fill:none;stroke-width:2}
.heat{fill:var(--heat);stroke:var(--line);stroke-width:.3}.legend{list-style:none;margin:.3rem 0 0;padding:0;
display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem}.key{display:inline-block;width:.8em;height:.8em;
margin-right:.4em;border-radius:2px}pre,code{background:var(--card);font-size:.85rem;overflow-wrap:anywhere}
pre{white-space:pre-wrap;border:1px solid var(--line);border-radius:6px;padding:.7rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}th,td{text-align:left;
padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}summary{cursor:pointer}.hint{display:none}
@media(max-width:600px){svg text{font-size:14px}svg .small{font-size:12px}.hint{display:block;color:var(--dim);
font-size:.8rem;margin:0}th:first-child{position:sticky;left:0;background:var(--page)}}
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

}  // namespace

std::string page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width,initial-scale=1'><title>{0}</title><style>{1}</style></head>\n<body><main><h1>{0}</"
      "h1>\n{2}</main></body></html>\n",
      html_text(title), style(), body);
}

std::string html_table(std::span<const std::string> head, std::span<const std::vector<std::string>> rows,
                       const std::set<std::size_t>& numbers) {
  const auto number = [&](std::size_t column) { return numbers.contains(column) ? " class='n'" : ""; };
  std::string html = "<div class='scroll'><table><thead><tr>";
  for (std::size_t c = 0; c < head.size(); ++c) {
    html += fmt::format("<th scope='col'{}>{}</th>", number(c), html_text(head[c]));
  }
  html += "</tr></thead><tbody>";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const char* tag = c == 0 ? "th" : "td";
      html += fmt::format("<{0}{1}{2}>{3}</{0}>", tag, c == 0 ? " scope='row'" : "", number(c), html_text(row[c]));
    }
    html += "</tr>";
  }
  html += "</tbody></table></div>";
  constexpr std::size_t kFits = 4;
  return head.size() > kFits ? "<p class='hint'>the table scrolls sideways →</p>" + html : html;
}

std::string section(const std::string& title, const std::string& content) {
  return content.empty() ? "" : fmt::format("<h2>{}</h2>{}\n", html_text(title), content);
}

}  // namespace ddp
