#include "ir/layout/locality.h"

#include <algorithm>
#include <map>

#include "ir/error.h"

// coordinate(register, thread) = (low ^ thread's low) + (high + thread's high) on each axis, with
// the atom's images in `low` and what digits add in `high`. So an element and a thread determine
// what the register must contribute: a look-up in a table instead of a search. Threads that
// contribute the same to both layouts are as one, and so are registers of the loop.
namespace kiln {
namespace {

constexpr int kNowhere = -1;

// One axis of a coordinate in its two parts: images of the atom are combined by exclusive or, what
// digits contribute is added.
struct Part {
  int64_t low = 0, high = 0;
  auto operator<=>(const Part&) const = default;
};
using Parts = std::vector<Part>;  // one an axis

// What an index of one resource contributes to each axis of the layout.
Parts contribution(const Layout& layout, Resource resource, int64_t index) {
  Parts parts(layout.shape().size());
  const Images& images = layout.atom()[resource];
  for (size_t bit = 0; bit < images.size(); ++bit)
    if (index >> bit & 1)
      for (size_t axis = 0; axis < parts.size(); ++axis) parts[axis].low ^= images[bit][axis];
  for (const Digit& digit : layout.digits())
    if (digit.resource == resource && digit.axis != kNoAxis)
      parts[static_cast<size_t>(digit.axis)].high +=
          index / digit.stride % digit.extent * digit.axis_stride;
  return parts;
}

Parts combined(Parts a, const Parts& b) {
  for (size_t axis = 0; axis < a.size(); ++axis) {
    a[axis].low ^= b[axis].low;
    a[axis].high += b[axis].high;
  }
  return a;
}

// Where an axis of the loop meets an axis of the fragment: all that locality depends on. An axis
// that only one of them has stays if its padding decides whether a point is inside.
struct Axis {
  int loop = kNoAxis, fragment = kNoAxis;
  int64_t inside = 1;  // coordinates from here on are outside the loop's box or the fragment's
  int64_t extent = 1;  // of the fragment, padding included
  int64_t mask = 0;    // the bits of the fragment's atom
};

std::vector<Axis> meeting_axes(const Layout& loop, const std::vector<int>& axes,
                               const Layout& fragment) {
  std::vector<Axis> all;
  const Coordinate loop_extents = loop.padded_shape(), extents = fragment.padded_shape();
  for (size_t k = 0; k < axes.size(); ++k) {
    Axis axis{axes[k], static_cast<int>(k), fragment.shape()[k], extents[k],
              (int64_t{1} << fragment.atom_bits(static_cast<int>(k))) - 1};
    if (axes[k] != kNoAxis)
      axis.inside = std::min(axis.inside, loop.shape().at(static_cast<size_t>(axes[k])));
    if (axis.loop != kNoAxis || axis.extent > 1) all.push_back(axis);
  }
  for (int l = 0; l < loop.rank(); ++l) {
    const auto at = static_cast<size_t>(l);
    const bool padded = loop_extents[at] > loop.shape()[at];
    if (padded && std::find(axes.begin(), axes.end(), l) == axes.end())
      all.push_back({l, kNoAxis, loop.shape()[at], 1, 0});
  }
  return all;
}

// The loop's and the fragment's parts side by side, on the axes that matter.
struct Thread {
  Parts loop, fragment;
  auto operator<=>(const Thread&) const = default;
};

class Search {
 public:
  Search(const Layout& loop, const std::vector<int>& axes, const Layout& fragment)
      : loop_(loop), fragment_(fragment), axes_(meeting_axes(loop, axes, fragment)) {
    collect_threads();
    index_registers();
  }

  std::optional<std::vector<int>> run() const {
    std::vector<int> found;
    std::map<Parts, int> done;  // registers that differ only along other axes
    for (int64_t reg = 0; reg < loop_.registers(); ++reg) {
      const Parts point = of_loop(contribution(loop_, Resource::Reg, reg));
      auto known = done.find(point);
      if (known == done.end()) {
        const std::optional<int> in = common_register(point);
        if (!in) return std::nullopt;
        known = done.emplace(point, *in).first;
      }
      found.push_back(known->second);
    }
    return found;
  }

 private:
  Parts of_loop(const Parts& all) const {
    Parts some;
    for (const Axis& axis : axes_)
      some.push_back(axis.loop == kNoAxis ? Part{} : all[static_cast<size_t>(axis.loop)]);
    return some;
  }
  Parts of_fragment(const Parts& all) const {
    Parts some;
    for (const Axis& axis : axes_)
      some.push_back(axis.fragment == kNoAxis ? Part{} : all[static_cast<size_t>(axis.fragment)]);
    return some;
  }

  // Each different one once: threads that hold the same of both are as one.
  void collect_threads() {
    const auto of = [](const Layout& layout, int64_t lane, int64_t warp) {
      return combined(contribution(layout, Resource::Lane, lane),
                      contribution(layout, Resource::Warp, warp));
    };
    for (int64_t warp = 0; warp < loop_.warps(); ++warp)
      for (int64_t lane = 0; lane < loop_.extent(Resource::Lane); ++lane)
        threads_.push_back(
            {of_loop(of(loop_, lane, warp)), of_fragment(of(fragment_, lane, warp))});
    std::sort(threads_.begin(), threads_.end());
    threads_.erase(std::unique(threads_.begin(), threads_.end()), threads_.end());
  }

  // By what a register contributes to the coordinate; of copies the first.
  void index_registers() {
    int64_t size = 1;
    for (const Axis& axis : axes_) size *= axis.extent;
    registers_.assign(static_cast<size_t>(size), kNowhere);
    for (int64_t reg = fragment_.registers(); reg-- > 0;) {
      const Parts parts = of_fragment(contribution(fragment_, Resource::Reg, reg));
      int64_t at = 0;
      for (size_t a = 0; a < axes_.size(); ++a)
        at = at * axes_[a].extent + parts[a].low + parts[a].high;
      registers_[static_cast<size_t>(at)] = static_cast<int>(reg);
    }
  }

  // The register of the fragment in which every thread has its element of this register of the
  // loop; kNowhere if no thread needs one.
  std::optional<int> common_register(const Parts& point) const {
    int common = kNowhere;
    for (const Thread& thread : threads_) {
      int64_t at = 0;
      bool needed = true, held = true;
      for (size_t a = 0; a < axes_.size() && needed; ++a) {
        const Axis& axis = axes_[a];
        const int64_t coordinate =
            (point[a].low ^ thread.loop[a].low) + point[a].high + thread.loop[a].high;
        needed = coordinate < axis.inside;
        if (axis.fragment == kNoAxis) continue;
        const int64_t low = coordinate & axis.mask;
        const int64_t high = coordinate - low - thread.fragment[a].high;
        held &= high >= 0;
        at = at * axis.extent + (low ^ thread.fragment[a].low) + high;
      }
      if (!needed) continue;
      const int reg = held ? registers_[static_cast<size_t>(at)] : kNowhere;
      if (reg == kNowhere || (common != kNowhere && common != reg)) return std::nullopt;
      common = reg;
    }
    return common;
  }

  const Layout& loop_;
  const Layout& fragment_;
  const std::vector<Axis> axes_;
  std::vector<Thread> threads_;
  std::vector<int> registers_;  // by flat coordinate
};

}  // namespace

std::optional<std::vector<int>> local_registers(const Layout& loop, const std::vector<int>& axes,
                                                const Layout& fragment) {
  if (axes.size() != fragment.shape().size() ||
      loop.extent(Resource::Lane) != fragment.extent(Resource::Lane) ||
      loop.warps() != fragment.warps())
    throw InternalError("local_registers: layouts of different threads, or not one axis each");
  return Search(loop, axes, fragment).run();
}

}  // namespace kiln
