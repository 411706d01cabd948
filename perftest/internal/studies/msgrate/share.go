package msgrate

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// Share is the type of object that threads share. All other objects belong to one thread, as far as
// the type permits. Unless stated otherwise, each QP is in a thread domain with a UAR page of its
// own.
type Share string

// Shares.
const (
	// ShareNone gives each thread a context of its own: sharing is compared with it.
	ShareNone Share = "none"
	ShareBuf  Share = "buf" // the payload, with contexts of their own
	ShareCtx  Share = "ctx"
	// ShareCtx2x shares a context with twice as many thread domains and QPs.
	ShareCtx2x Share = "ctx-2xqps"
	// ShareCtxUAR shares a context in which two thread domains share a UAR page.
	ShareCtxUAR Share = "ctx-sharing2"
	// The other types need one context for all threads.
	SharePD Share = "pd"
	ShareMR Share = "mr"
	ShareCQ Share = "cq"
	// ShareQP shares a QP and its CQ; QPs are in no thread domain.
	ShareQP Share = "qp"
)

// Shares lists all types.
func Shares() []Share {
	return []Share{ShareNone, ShareBuf, ShareCtx, ShareCtx2x, ShareCtxUAR, SharePD, ShareMR, ShareCQ, ShareQP}
}

// ParseShare returns the type with a name.
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

// Apply makes x neighboring threads of cfg share an object of the type.
func (s Share) Apply(cfg Config, x int) (Config, error) {
	if x < 1 {
		return cfg, fmt.Errorf("%d-way sharing: want one way or more", x)
	}
	n := (max(cfg.Threads, 1) + x - 1) / x * x // all, in complete groups
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
