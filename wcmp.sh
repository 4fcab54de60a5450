#!/bin/bash
# wcmp.sh A B DEV...: run wild with B on DEVs, compare with A
a=$1 b=$2; shift 2; cd /tmp/n
for d in "$@"; do echo $d; done | xargs -P2 -I{} sh -c "./wild.sh $b {} > o/wild.$b.{}"
for d in "$@"; do echo "== $d"; paste o/wild.$a.$d o/wild.$b.$d | awk '{r=$12/$3; g+=log(r); n++; if(r<.99||r>1.01||$15/$6>1.02||$15/$6<.98) print $1,$3,$12,"none",$5,$14,"f/u",$6,$15,"plan",$7,$16} END{print "mean",exp(g/n)}' | column -t; done
