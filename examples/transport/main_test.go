package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/examples/transport/usock"
	"github.com/gucx/gucx/perftest/perf"
	"github.com/gucx/gucx/uct"
)

// TestMain is the program itself where the test has started it as the target.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "peer" {
		main()
	}
	os.Exit(m.Run())
}

// The transport is measured through both layers, by two processes, with checked data.
func TestMeasured(t *testing.T) {
	own := gucx.Own{Components: func() []uct.Component { return []uct.Component{usock.New()} }}
	var out, errs bytes.Buffer
	args := "-x usock -t put_lat,put_bw,get_lat,am_lat,put_pp -s 8,4k -n 32 -w 4 --rounds 2 -W 40 -q -o csv"
	require.Zero(t, perf.Program{Own: own}.Run(strings.Fields(args), &out, &errs), errs.String())
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Len(t, rows, 1+2*5*2, "a header; of each size five tests by two layers")
	for _, row := range rows[1:] {
		assert.Contains(t, row, "usock")
	}
}
