#!/usr/bin/env bash
# Tests of comment_check.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh" comment_check.sh

of=Of # so that this file passes itself
put README.md '# Of no interest'
rejects 'there is no source file'
put src/base/clock.h '// The time of this rank. Offsets are the sums' '// of those of the ranks.' 'double now();'
put launch/run '#!/bin/sh' '# The number of ranks here.'
passes 'a comment that begins with its noun'
put src/base/clock.h "// $of this rank." 'double now();'
rejects "src/base/clock.h:1:// $of this rank." "1 comments begin with 'Of'"
put src/base/clock.h "double now();  // $of this rank"
rejects "src/base/clock.h:1:"
put src/base/clock.h 'double now();'
put launch/run '#!/bin/sh' "# $of the ranks here."
rejects "launch/run:2:# $of the ranks here."
summary
