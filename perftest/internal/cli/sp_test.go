package cli

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSP(t *testing.T) {
	code, out, errs := perftest(t, strings.Fields("sp -q -x sm --ranks 4 --protocols am,put_zcopy -o csv")...)
	require.Equal(t, exitOK, code, errs)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 3)
	for i, protocol := range []string{"am", "put_zcopy"} {
		assert.Equal(t, []string{"S", "4", protocol}, rows[1+i][:3])
	}
}

func TestSP_Table(t *testing.T) {
	code, out, errs := perftest(t, strings.Fields("sp -q -x sm --ranks 1 --protocols am")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "12 x 12 x 12 points, 100 steps")
}

func TestSP_Refuses(t *testing.T) {
	for args, want := range map[string]string{
		"--class D":          `class "D"`,
		"--ranks 2":          "square",
		"--ranks 49":         "cells of 1",
		"--protocols magic":  "put_zcopy",
		"-o paper":           "paper",
		"--class S -x other": "",
	} {
		code, _, errs := perftest(t, append([]string{"sp", "-q"}, strings.Fields(args)...)...)
		if want == "" {
			assert.Equal(t, exitFailure, code, args)
			assert.Contains(t, errs, "other", args)
			continue
		}
		assert.Equal(t, exitUsage, code, args)
		assert.Contains(t, errs, want, args)
	}
}
