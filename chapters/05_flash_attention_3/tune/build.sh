#!/bin/bash
cd /work/wt/ch05
F="-std=c++20 -gencode arch=compute_90a,code=sm_90a -I. -O3 -split-compile 2 -Xcompiler -fPIC"
nice nvcc $F -Xptxas=-v -Ibuild/tune -c build/tune/tune.cu -o build/tune/tune.o > build/tune/ptxas.log 2>&1 || { grep -E "error" build/tune/ptxas.log | head; exit 1; }
c++filt < build/tune/ptxas.log | grep -E "C75" | sed 's/CUtensor.*//' 
c++filt < build/tune/ptxas.log | awk '/Compiling entry/ {n=$0} /bytes spill/ && ($5+0>0||$9+0>0) {print n; print $0}' | sed 's/CUtensor.*//'
for f in common/device/cuda.cu common/device/resources.cu common/device/tensor_map.cu common/device/buffer.cpp common/device/host_memory.cpp common/attention/cost.cpp common/attention/shape.cpp; do
  o=build/tune/$(basename $f).o; [ -f $o ] || nice nvcc $F -x cu -c $f -o $o || exit 1
done
nice nvcc -shared -gencode arch=compute_90a,code=sm_90a -cudart static -o build/tune/libtune.so build/tune/*.o && ls -la build/tune/libtune.so
