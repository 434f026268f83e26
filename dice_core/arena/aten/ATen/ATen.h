#pragma once
#include <dice_aten/tensor.h>
