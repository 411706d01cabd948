package msgrate

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// Share is a kind of object that threads share, all else being theirs: where the kind
// of object lets them be. Unless said, QPs are in thread domains with a UAR page each.
type Share string

// Shares.
const (
	// ShareNone gives each thread a context: what sharing is compared with.
	ShareNone Share = "none"
	ShareBuf  Share = "buf" // the payload, in contexts of their own
	ShareCtx  Share = "ctx"
	// ShareCtx2x shares a context that has twice the thread domains and QPs.
	ShareCtx2x Share = "ctx-2xqps"
	// ShareCtxUAR shares a context in which two thread domains share a UAR page.
	ShareCtxUAR Share = "ctx-sharing2"
	// The others need one context for all threads.
	SharePD Share = "pd"
	ShareMR Share = "mr"
	ShareCQ Share = "cq"
	// ShareQP shares a QP and its CQ; QPs are in no thread domain.
	ShareQP Share = "qp"
)

// Shares lists all.
func Shares() []Share {
	return []Share{ShareNone, ShareBuf, ShareCtx, ShareCtx2x, ShareCtxUAR, SharePD, ShareMR, ShareCQ, ShareQP}
}

// ParseShare finds a kind by its name.
func ParseShare(name string) (Share, error) {
	var names []string
	for _, s := range Shares() {
		if strings.EqualFold(string(s), name) {
			return s, nil
		}
		names = append(names, string(s))
	}
	return "", fmt.Errorf("shared object %q: there are %s", name, strings.Join(names, ", "))
}

// Apply has x neighbors of the threads of cfg share the kind of object.
func (s Share) Apply(cfg Config, x int) (Config, error) {
	if x < 1 {
		return cfg, fmt.Errorf("%d-way sharing: want one way or more", x)
	}
	n := (max(cfg.Threads, 1) + x - 1) / x * x // all, in whole groups
	p := endpoint.Plan{Domain: 1}
	cfg.Buf, cfg.MR = 1, 1
	switch s {
	case ShareNone:
	case ShareBuf:
		cfg.Buf = x
	case ShareCtx:
		p.Context = x
	case ShareCtx2x:
		p.Context, p.Spare = x, true
	case ShareCtxUAR:
		p.Context, p.Domain = x, 2
	case SharePD:
		p.Context, p.PD = n, x
	case ShareMR:
		p.Context, p.PD, cfg.MR = n, n, x
	case ShareCQ:
		p.Context, p.PD, p.CQ = n, n, x
	case ShareQP:
		p = endpoint.Plan{Context: n, PD: n, CQ: x, QP: x}
	default:
		_, err := ParseShare(string(s))
		return cfg, err
	}
	cfg.Plan = p
	return cfg, nil
}
