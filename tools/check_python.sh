#!/bin/sh
# check_python.sh VENV [PYTHON]: whether an environment may be made, or used, with this Python.
# Nothing is printed when all is well; else one line says what to do. Without PYTHON, the one that
# VENV was made with will do.
venv=$1
python=${2-}
version='import sys; print(sys.version)'

refuse() {
    echo "$1" >&2
    exit 1
}

if [ -e "$venv/.base" ]; then
    "$venv/bin/python" -c '' 2>/dev/null ||
        refuse "the Python that $venv was made with is gone: make clean, then again"
    [ -n "$python" ] || exit 0
fi
[ -n "$python" ] || refuse "no Python of 3.11 or newer is on the path: make PYTHON=/path/to/one"
"$python" -c '' 2>/dev/null || refuse "PYTHON=$python is not a Python that runs"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    refuse "PYTHON=$python is too old: Python 3.11 or newer is needed"
if [ -e "$venv/.base" ]; then
    [ "$("$python" -c "$version")" = "$("$venv/bin/python" -c "$version")" ] ||
        refuse "$venv was made with another Python: make clean first, or add VENV=.venv-other"
    exit 0
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    refuse "PYTHON=$python has no ensurepip: install python3-venv (Debian, Ubuntu), or take another"
[ ! -e "$venv" ] || [ -e "$venv/.making" ] ||
    refuse "$venv is there, but make did not make it: remove it, or add VENV=.venv-other"
