// SPDX-License-Identifier: Apache-2.0
// Drawn data: pictures like electroluminescence shots of solar cells, with and without defects.
#pragma once
#include <cairn/data.h>

#include <functional>

#include "data/decode.h"

namespace cairn::data {

struct MakeOptions {
  int64_t count = 1000;
  double defective = 0.31;  // share of cells with a defect
  double poly = 0.6;        // share of polycrystalline cells
  int size = 300;           // side in pixels, 32 … 4096
  uint64_t seed = 1;
};

// Cell `index` of a seed, grey: a wafer with busbars and fingers, uneven light, blur and noise. A
// defective one has cracks, dead areas or many broken fingers, some of them faint; a sound one may have
// a few broken fingers, spots and scratches too, so brightness alone does not tell.
struct DrawnCell {
  Picture picture;
  bool defective = false, poly = false;
};
DrawnCell draw_cell(const MakeOptions& options, int64_t index);

// Writes functional/*.png, defective/*.png and labels.csv (path,label,type) as a new folder, which
// appears whole or not at all. throws invalid_argument when something is there already. `progress`
// gets the number of pictures done, from any thread.
void make_solar_cells(const std::string& folder, const MakeOptions& options,
                      const std::function<void(int64_t)>& progress = {});

}  // namespace cairn::data
