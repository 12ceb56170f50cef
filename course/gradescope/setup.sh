#!/usr/bin/env bash
# Gradescope runs this once, as root, to make the autograder's image: installs the build's dependencies, builds the judge and grades the solutions,
# so that a broken grader fails now and not in front of students.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends ca-certificates g++ cmake ninja-build python3 python3-venv \
  libgtest-dev libcli11-dev nlohmann-json3-dev

at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n1)" = "$1" ]; } # at_least WANTED THERE

# Ubuntu 22.04's compiler and CMake are too old for the book.
if ! at_least 12 "$(g++ -dumpversion)"; then
  apt-get install -y -qq --no-install-recommends g++-12
  update-alternatives --install /usr/bin/c++ c++ /usr/bin/g++-12 90 --slave /usr/bin/g++ g++ /usr/bin/g++-12
fi
if ! at_least 3.24 "$(cmake --version | sed -n 's/^cmake version //p')"; then
  python3 -m venv /opt/cmake
  /opt/cmake/bin/pip install -q 'cmake>=3.24,<4'
  ln -sf /opt/cmake/bin/cmake /opt/cmake/bin/ctest /usr/local/bin/
fi

cd /autograder/source/flashbook
cmake --preset sim -DCMAKE_CXX_COMPILER=g++
cmake --build --preset sim --target @TARGETS@
chmod -R go-rwx /autograder/source # submissions run as another user

trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
python3 course/handout.py "$trial/solved" --solved
python3 course/grade.py "$trial/solved" @NAMES@ @UNFENCED@ --out "$trial"
if grep -q '"failed"' "$trial/results.json"; then
  echo "setup.sh: the book's own solutions do not get all points, see above" >&2
  exit 1
fi
