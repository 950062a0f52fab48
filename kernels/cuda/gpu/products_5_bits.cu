#include "kernels/cuda/gpu/products.cuh"

OUTRIDER_PRODUCTS(q5_0);
OUTRIDER_PRODUCTS(q5_1);
OUTRIDER_PRODUCTS(q5_k);
