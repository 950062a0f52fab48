#pragma once

#include "kernels/cpu/code_matmul.inl.hpp"
#include "kernels/cpu/float_matmul.inl.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

static void matmul(const MatmulArgs& a, Range rows, Range panels) {
  switch (a.kind) {
    case PanelKind::f32:
      return float_matmul<PanelKind::f32>(a, rows, panels);
    case PanelKind::f16:
      return float_matmul<PanelKind::f16>(a, rows, panels);
    case PanelKind::bf16:
      return float_matmul<PanelKind::bf16>(a, rows, panels);
    case PanelKind::q4_0:
      return code_matmul<PanelKind::q4_0>(a, rows, panels);
    case PanelKind::q4_1:
      return code_matmul<PanelKind::q4_1>(a, rows, panels);
    case PanelKind::q5_0:
      return code_matmul<PanelKind::q5_0>(a, rows, panels);
    case PanelKind::q5_1:
      return code_matmul<PanelKind::q5_1>(a, rows, panels);
    case PanelKind::q8_0:
      return code_matmul<PanelKind::q8_0>(a, rows, panels);
    case PanelKind::q4_k:
      return code_matmul<PanelKind::q4_k>(a, rows, panels);
    case PanelKind::q5_k:
      return code_matmul<PanelKind::q5_k>(a, rows, panels);
    case PanelKind::q6_k:
      return code_matmul<PanelKind::q6_k>(a, rows, panels);
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
