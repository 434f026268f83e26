#pragma once
#include <dice_aten/tensor.h>
// The builder defines this for sources that mention pybind11; without it Python.h need not be read.
#ifdef DICE_LIGHT_BINDING
#include <dice_light/bind.h>
#endif
