# Lists the modules of this repository. Sourced by the other scripts, which run
# in its root.
# shellcheck shell=bash

# modules prints the directory of every module that has packages to test; the
# module of the tools has none.
modules() {
	find . -name go.mod -not -path './.services/*' -not -path './tools/*' -not -path '*/testdata/*' -printf '%h\n' | sort
}
