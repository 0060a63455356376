// SPDX-License-Identifier: Apache-2.0
#include "inspect/plot.h"

#include <cairn/error.h>
#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "base/file.h"
#include "inspect/font.h"

namespace cairn::inspect {
namespace {

constexpr double kPixels = 2;  // pixels a unit of the drawing, for sharp screens
constexpr double kTextSize = 13, kTitleSize = 16;

struct Colour {
  double r, g, b;
};
constexpr Colour rgb(uint32_t hex) {
  return {(hex >> 16 & 255) / 255.0, (hex >> 8 & 255) / 255.0, (hex & 255) / 255.0};
}
constexpr Colour kInk = rgb(0x222222), kFaint = rgb(0x666666), kGrid = rgb(0xE6E6E6),
                 kPaper = rgb(0xFFFFFF);

// Okabe and Ito, "Color universal design" (2008), in the order that keeps neighbours far apart.
constexpr std::array kColours{rgb(0x0072B2), rgb(0xD55E00), rgb(0x009E73), rgb(0xCC79A7),
                              rgb(0xE69F00), rgb(0x56B4E9), rgb(0x000000)};
struct Style {
  Colour colour;
  std::vector<double> dash;
};
Style style(size_t i) {
  static const std::array<std::vector<double>, 4> dashes{{{}, {7, 3}, {2, 3}, {9, 3, 2, 3}}};
  return {kColours[i % kColours.size()], dashes[i % dashes.size()]};
}

enum class Align { left, centre, right };

class Canvas {
 public:
  Canvas(double width, double height)
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, int(std::ceil(width * kPixels)),
                                            int(std::ceil(height * kPixels))),
                 cairo_surface_destroy),
        cr_(cairo_create(surface_.get()), cairo_destroy) {
    cairo_scale(cr_.get(), kPixels, kPixels);
    cairo_set_font_face(cr_.get(), font());
    const std::unique_ptr<cairo_font_options_t, decltype(&cairo_font_options_destroy)> options(
        cairo_font_options_create(), cairo_font_options_destroy);
    cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(cr_.get(), options.get());
    colour(kPaper);
    cairo_paint(cr_.get());
  }

  cairo_t* cr() const { return cr_.get(); }
  void colour(Colour c, double alpha = 1) { cairo_set_source_rgba(cr(), c.r, c.g, c.b, alpha); }
  void dash(const std::vector<double>& d) { cairo_set_dash(cr(), d.data(), int(d.size()), 0); }

  void line(double x0, double y0, double x1, double y1, Colour c, double width = 1) {
    colour(c);
    cairo_set_line_width(cr(), width);
    cairo_move_to(cr(), x0, y0);
    cairo_line_to(cr(), x1, y1);
    cairo_stroke(cr());
  }
  void rectangle(double x, double y, double w, double h, Colour c) {
    colour(c);
    cairo_rectangle(cr(), x, y, w, h);
    cairo_fill(cr());
  }
  double text_width(const std::string& text, double size = kTextSize) {
    cairo_set_font_size(cr(), size);
    cairo_text_extents_t extents;
    cairo_text_extents(cr(), text.c_str(), &extents);
    return extents.x_advance;
  }
  // `y` is the middle of a small letter's height; with `upright` the text reads from bottom to top.
  void text(double x, double y, const std::string& text, Align align = Align::left, Colour c = kInk,
            double size = kTextSize, bool upright = false) {
    const double width = text_width(text, size);
    colour(c);
    cairo_save(cr());
    cairo_translate(cr(), x, y);
    if (upright) cairo_rotate(cr(), -std::acos(-1.0) / 2);
    cairo_move_to(cr(),
                  align == Align::left     ? 0
                  : align == Align::centre ? -width / 2
                                           : -width,
                  0.36 * size);
    cairo_show_text(cr(), text.c_str());
    cairo_restore(cr());
  }
  // `text` made safe to draw, and cut with "…" to fit `width`.
  std::string fit(const std::string& text, double width, double size = kTextSize) {
    std::string s = printable(text);  // bad UTF-8 would put cairo into its error state
    if (text_width(s, size) <= width) return s;
    while (!s.empty() && text_width(s + "…", size) > width) {
      while (!s.empty() && (uint8_t(s.back()) & 0xC0) == 0x80) s.pop_back();
      if (!s.empty()) s.pop_back();
    }
    return s + "…";
  }

  std::string png() {
    std::string out;
    const auto append = [](void* to, const unsigned char* data, unsigned size) noexcept {
      try {
        static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(data), size);
        return CAIRO_STATUS_SUCCESS;
      } catch (...) {
        return CAIRO_STATUS_NO_MEMORY;
      }
    };
    const auto drawn = cairo_status(cr());
    CAIRN_CHECK(drawn == CAIRO_STATUS_SUCCESS, cairo_status_to_string(drawn));
    const auto written = cairo_surface_write_to_png_stream(surface_.get(), append, &out);
    CAIRN_CHECK(written == CAIRO_STATUS_SUCCESS, cairo_status_to_string(written));
    return out;
  }

 private:
  std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface_;
  std::unique_ptr<cairo_t, decltype(&cairo_destroy)> cr_;
};

struct Box {
  double left, top, width, height;
  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

// One axis: a range, and round values to mark on it.
struct Axis {
  double low, high, step;
  bool percent = false;

  // About `wanted` marks at multiples of 1, 2 or 5 times a power of ten; whole numbers if asked.
  static Axis over(double low, double high, int wanted, bool whole) {
    const double rough = (high - low) / wanted;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double m : {5, 2, 1})
      if (m * power >= rough * (1 - 1e-9)) step = m * power;
    if (whole) step = std::max(1.0, std::round(step));
    return {low, high, step};
  }
  std::vector<double> marks() const {
    std::vector<double> at;
    for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k)
      at.push_back(k == 0 ? 0 : k * step);  // no "-0"
    return at;
  }
  std::string label(double value) const {
    const double shown_step = percent ? 100 * step : step, shown = percent ? 100 * value : value;
    if (std::max(std::abs(low), std::abs(high)) >= 1e6 || shown_step < 1e-5)
      return fmt::format("{:.3g}{}", shown, percent ? "%" : "");
    const int digits = std::max(0, int(std::ceil(-std::log10(shown_step) - 1e-9)));
    return fmt::format("{:.{}f}{}", shown, digits, percent ? "%" : "");
  }
};

// Neither NaN nor infinite, nor so great that differences overflow.
bool drawable(double v) { return std::abs(v) <= 1e300; }

// The least and greatest drawable value, or 0 and 1 when there is none; never of width zero.
std::pair<double, double> span(const std::vector<Series>& series, bool of_x, double margin) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const Series& s : series)
    for (size_t i = 0; i < s.x.size(); ++i)
      if (drawable(s.x[i]) && drawable(s.y[i])) {
        const double v = of_x ? s.x[i] : s.y[i];
        low = std::min(low, v), high = std::max(high, v);
      }
  if (low > high) return {0, 1};
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high))) {
    const double around = low == 0 ? 1 : 0.1 * std::abs(low);
    return {low - around, high + around};
  }
  const double extra = margin * (high - low);
  return {low - extra, high + extra};
}

// The legend in rows above `area`, which shrinks by their height.
void draw_legend(Canvas& canvas, const std::vector<Series>& series, Box& area) {
  constexpr double kRow = 20, kSample = 26, kGap = 18;
  double x = area.left, y = area.top + kRow / 2;
  bool any = false;
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].name.empty()) continue;
    const std::string name = canvas.fit(series[i].name, area.width - kSample - 6);
    const double width = kSample + 6 + canvas.text_width(name);
    if (any && x + width > area.right()) x = area.left, y += kRow;
    const Style s = style(i);
    canvas.dash(s.dash);
    canvas.line(x, y, x + kSample, y, s.colour, 2.2);
    canvas.dash({});
    canvas.text(x + kSample + 6, y, name);
    x += width + kGap;
    any = true;
  }
  if (!any) return;
  const double used = y + kRow / 2 + 10 - area.top;
  area.top += used, area.height -= used;
}

void draw_curve(Canvas& canvas, const Series& series, const Style& s, auto&& to_x, auto&& to_y) {
  cairo_t* cr = canvas.cr();
  canvas.colour(s.colour);
  canvas.dash(s.dash);
  cairo_set_line_width(cr, 2.2);
  cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
  const auto shown = [&](size_t i) {
    return i < series.x.size() && drawable(series.x[i]) && drawable(series.y[i]);
  };
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!shown(i)) continue;
    const bool begins = i == 0 || !shown(i - 1);
    (begins ? cairo_move_to : cairo_line_to)(cr, to_x(series.x[i]), to_y(series.y[i]));
    if (begins && !shown(i + 1)) {  // a point alone is a dot
      cairo_new_sub_path(cr);
      cairo_arc(cr, to_x(series.x[i]), to_y(series.y[i]), 1.5, 0, 7);
    }
  }
  cairo_stroke(cr);
  canvas.dash({});
}

void draw_lines(Canvas& canvas, const LinePlot& plot, Box area, bool diagonal = false) {
  for (const Series& s : plot.series)
    if (s.x.size() != s.y.size())
      fail(ErrorCode::invalid_argument,
           fmt::format("plot: series \"{}\": x has {} values, y has {}", s.name, s.x.size(),
                       s.y.size()));

  canvas.text(area.left + area.width / 2, area.top + kTitleSize / 2,
              canvas.fit(plot.title, area.width, kTitleSize), Align::centre, kInk, kTitleSize);
  const double title = plot.title.empty() ? 0 : kTitleSize + 14;
  area.top += title, area.height -= title;

  const auto x_span = plot.x_range.value_or(span(plot.series, true, 0));
  const auto y_span = plot.y_range.value_or(span(plot.series, false, 0.05));
  const bool whole_x = std::all_of(plot.series.begin(), plot.series.end(), [](const Series& s) {
    return std::all_of(s.x.begin(), s.x.end(), [](double v) { return v == std::floor(v); });
  });
  for (const auto& [low, high] : {x_span, y_span})
    if (!(low < high && std::isfinite(high - low)))
      fail(ErrorCode::invalid_argument,
           fmt::format("plot: the range {} to {} is empty", low, high));
  Axis y_axis =
      Axis::over(y_span.first, y_span.second, int(std::max(2.0, area.height / 45)), false);
  y_axis.percent = plot.y_percent;
  double y_label_width = 0;
  for (const double v : y_axis.marks())
    y_label_width = std::max(y_label_width, canvas.text_width(y_axis.label(v)));

  const double left = y_label_width + 8 + (plot.y_label.empty() ? 0 : 22);
  area.left += left, area.width -= left + 10;
  draw_legend(canvas, plot.series, area);
  area.height -= 22 + (plot.x_label.empty() ? 0 : 20);

  const auto to_x = [&](double v) {
    return area.left + (v - x_span.first) / (x_span.second - x_span.first) * area.width;
  };
  const auto to_y = [&](double v) {
    return area.bottom() - (v - y_span.first) / (y_span.second - y_span.first) * area.height;
  };
  for (const double v : y_axis.marks()) {
    canvas.line(area.left, to_y(v), area.right(), to_y(v), kGrid);
    canvas.text(area.left - 8, to_y(v), y_axis.label(v), Align::right, kFaint);
  }
  const Axis x_axis =
      Axis::over(x_span.first, x_span.second, int(std::max(2.0, area.width / 70)), whole_x);
  for (const double v : x_axis.marks()) {
    canvas.line(to_x(v), area.bottom(), to_x(v), area.bottom() + 4, kFaint);
    canvas.text(to_x(v), area.bottom() + 14, x_axis.label(v), Align::centre, kFaint);
  }
  canvas.line(area.left, area.bottom(), area.right(), area.bottom(), kFaint);
  if (!plot.x_label.empty())
    canvas.text(area.left + area.width / 2, area.bottom() + 34,
                canvas.fit(plot.x_label, area.width), Align::centre);
  if (!plot.y_label.empty())
    canvas.text(area.left - y_label_width - 20, area.top + area.height / 2,
                canvas.fit(plot.y_label, area.height), Align::centre, kInk, kTextSize, true);

  cairo_t* cr = canvas.cr();
  cairo_save(cr);
  cairo_rectangle(cr, area.left - 2, area.top - 2, area.width + 4, area.height + 4);
  cairo_clip(cr);
  if (diagonal) {
    canvas.dash({4, 4});
    canvas.line(area.left, area.bottom(), area.right(), area.top, kFaint);
    canvas.dash({});
    canvas.text(to_x(0.62), to_y(0.56), "chance", Align::left, kFaint);
  }
  if (plot.mark && plot.mark->x >= x_span.first && plot.mark->x <= x_span.second) {
    const double x = to_x(plot.mark->x);
    canvas.dash({3, 3});
    canvas.line(x, area.top, x, area.bottom(), kFaint);
    canvas.dash({});
    const bool flip = x > area.left + area.width / 2;
    canvas.text(x + (flip ? -6 : 6), area.top + 8, canvas.fit(plot.mark->label, area.width / 2),
                flip ? Align::right : Align::left, kFaint);
  }
  for (size_t i = 0; i < plot.series.size(); ++i)
    draw_curve(canvas, plot.series[i], style(i), to_x, to_y);
  cairo_restore(cr);
  if (std::all_of(plot.series.begin(), plot.series.end(),
                  [](const Series& s) { return s.x.empty(); }))
    canvas.text(area.left + area.width / 2, area.top + area.height / 2, "no data", Align::centre,
                kFaint);
}

// From white to deep blue, darker all the way, also in grey.
Colour shade(double share) {
  constexpr std::array stops{rgb(0xF7FBFF), rgb(0xC6DBEF), rgb(0x6BAED6), rgb(0x2171B5),
                             rgb(0x08306B)};
  const double at = std::clamp(share, 0.0, 1.0) * (stops.size() - 1);
  const size_t i = std::min<size_t>(size_t(at), stops.size() - 2);
  const double f = at - double(i);
  const auto mix = [&](double a, double b) { return a + f * (b - a); };
  return {mix(stops[i].r, stops[i + 1].r), mix(stops[i].g, stops[i + 1].g),
          mix(stops[i].b, stops[i + 1].b)};
}

}  // namespace

std::string plot_lines(const LinePlot& plot) {
  Canvas canvas(760, 480);
  draw_lines(canvas, plot, {20, 18, 720, 450});
  return canvas.png();
}

std::string plot_panels(const std::string& title, const std::vector<LinePlot>& panels) {
  constexpr double kWidth = 500, kHeight = 420;
  const double top = title.empty() ? 18 : 52;
  Canvas canvas(std::max<double>(1, double(panels.size())) * kWidth + 20, top + kHeight);
  canvas.text((double(panels.size()) * kWidth + 20) / 2, 26,
              canvas.fit(title, double(panels.size()) * kWidth, kTitleSize + 2), Align::centre,
              kInk, kTitleSize + 2);
  for (size_t i = 0; i < panels.size(); ++i)
    draw_lines(canvas, panels[i], {20 + double(i) * kWidth, top, kWidth - 20, kHeight - 14});
  return canvas.png();
}

std::string plot_training(const std::string& title, const TrainingCurves& curves) {
  const auto panel = [&](const char* name, const std::vector<double>& train,
                         const std::vector<double>& test) {
    LinePlot p{.title = name, .x_label = "epoch"};
    for (const auto& [label, y] : {std::pair{"training", &train}, {"test", &test}}) {
      if (y->empty()) continue;
      const size_t n = std::min(y->size(), curves.epochs.size());
      p.series.push_back({label,
                          {curves.epochs.begin(), curves.epochs.begin() + long(n)},
                          {y->begin(), y->begin() + long(n)}});
    }
    if (curves.best_epoch)
      p.mark = {*curves.best_epoch, fmt::format("best: epoch {:g}", *curves.best_epoch)};
    return p;
  };
  LinePlot loss = panel("Loss", curves.train_loss, curves.test_loss);
  LinePlot accuracy = panel("Accuracy", curves.train_accuracy, curves.test_accuracy);
  accuracy.y_percent = true;
  return plot_panels(title, {loss, accuracy});
}

std::string plot_roc(const std::string& title, const std::vector<Roc>& curves) {
  LinePlot plot{.title = title, .x_label = "False positive rate", .y_label = "True positive rate"};
  plot.x_range = plot.y_range = {0, 1};
  for (const Roc& c : curves)
    plot.series.push_back({fmt::format("{} (area under the curve {:.3f})", c.name, c.area),
                           c.false_positive_rate, c.true_positive_rate});
  Canvas canvas(560, 580);
  draw_lines(canvas, plot, {20, 18, 520, 550}, true);
  return canvas.png();
}

std::string plot_confusion(const std::string& title, const std::vector<std::string>& classes,
                           const std::vector<int64_t>& counts) {
  const size_t n = classes.size();
  if (counts.size() != n * n || n == 0)
    fail(ErrorCode::invalid_argument,
         fmt::format("confusion matrix: {} classes and {} counts: expected {}", n, counts.size(),
                     n * n));

  if (n > 1000)
    fail(ErrorCode::unsupported,
         fmt::format("confusion matrix: {} classes: a picture shows at most 1000", n));
  // Cells of a size to read, as long as the whole stays within a page.
  const double cell = std::clamp(640.0 / double(n), 2.0, 110.0), side = cell * double(n);
  const size_t every =
      size_t(std::ceil(kTextSize * 1.3 / cell));  // names that would touch are left out
  Canvas measure(1, 1);
  std::vector<std::string> names;
  double widest = 0;
  for (const auto& c : classes) {
    names.push_back(measure.fit(c, 150));
    widest = std::max(widest, measure.text_width(names.back()));
  }
  const bool upright = widest > cell - 8;
  const double left = 52 + widest, top = 62, below = (upright ? widest : kTextSize) + 50;
  const double scale_room = 90;  // the shade's scale, at the right
  const double height = std::max(side, 160.0);
  Canvas canvas(std::max(left + side + scale_room, 360.0), top + height + below);
  canvas.text(
      left + side / 2, 26,
      canvas.fit(title, 2 * std::min(left + side / 2, side / 2 + scale_room) - 10, kTitleSize),
      Align::centre, kInk, kTitleSize);

  for (size_t row = 0; row < n; ++row) {
    int64_t total = 0;
    for (size_t column = 0; column < n; ++column) total += counts[row * n + column];
    const double y = top + cell * double(row);
    for (size_t column = 0; column < n; ++column) {
      const int64_t count = counts[row * n + column];
      const double share = total > 0 ? double(count) / double(total) : 0,
                   x = left + cell * double(column);
      canvas.rectangle(x, y, cell, cell, shade(share));
      const Colour ink = share > 0.5 ? kPaper : kInk;
      const std::string number = fmt::format("{}", count);
      if (cell >= 60 && total > 0) {
        canvas.text(x + cell / 2, y + cell / 2 - 9, number, Align::centre, ink, 17);
        canvas.text(x + cell / 2, y + cell / 2 + 12, fmt::format("{:.1f}%", 100 * share),
                    Align::centre, ink, 12);
      } else if (const double size = std::min(kTextSize, 0.45 * cell);
                 size >= 7 && canvas.text_width(number, size) < cell - 3) {
        canvas.text(x + cell / 2, y + cell / 2, number, Align::centre, ink, size);
      }
    }
  }
  if (cell >= 12)
    for (size_t i = 0; i <= n; ++i) {
      const double at = cell * double(i);
      canvas.line(left + at, top, left + at, top + side, kPaper);
      canvas.line(left, top + at, left + side, top + at, kPaper);
    }
  for (size_t i = 0; i < n; i += every) {
    const double middle = cell * (double(i) + 0.5);
    canvas.text(left - 8, top + middle, names[i], Align::right);
    if (upright)
      canvas.text(left + middle, top + side + 8, names[i], Align::right, kInk, kTextSize, true);
    else
      canvas.text(left + middle, top + side + 14, names[i], Align::centre);
  }
  canvas.text(left + side / 2, top + side + below - 20, "Predicted", Align::centre, kFaint);
  canvas.text(20, top + side / 2, "True", Align::centre, kFaint, kTextSize, true);

  const double bar = std::min(side, 220.0), x = left + side + 24;
  for (int i = 0; i < 100; ++i)
    canvas.rectangle(x, top + bar * i / 100, 14, bar / 100 + 0.5, shade(1 - i / 99.0));
  for (const double share : {0.0, 0.5, 1.0})
    canvas.text(x + 20, top + bar * (1 - share), fmt::format("{:.0f}%", 100 * share), Align::left,
                kFaint, 12);
  canvas.text(x, top - 16, "of the row", Align::left, kFaint, 11);
  return canvas.png();
}

}  // namespace cairn::inspect
