package cli

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/ucp"
)

// TestMistakes: errors name the flag and its value.
func TestMistakes(t *testing.T) {
	refuses(t, "", map[string]string{
		"serve":                   `unknown command "serve" for "perftest"; there is server` + "\n",
		"put_lat":                 `unknown command "put_lat" for "perftest"; tests are named by -t` + "\n",
		"HOST -t tag_lat":         `unknown command "HOST" for "perftest"; to measure against a server there is perftest client ADDRESS` + "\n",
		"--counters bpf":          "a source of counters is in one word with the flag: --counters=bpf\n",
		"-n abc":                  "perftest: --iters abc: want a whole number\n",
		"-n 10000000000000000000": "--iters 10000000000000000000: want a smaller number\n",
		"-n 1.5":                  "--iters 1.5: want a whole number\n",
		"--full=often":            "--full often: want true or false\n",
		"-T 1,two":                "--threads 1,two: want a whole number\n",
		"msgrate --ways 1,x":      "--ways 1,x: want a whole number\n",
		"instructions -n x":       "--reps x: want a whole number\n",
		"compare-ucx --near far":  "--near far: want a number\n",
		"stencil -q --hybrid=":    "nothing to measure",
		"stencil --categories=":   "nothing to measure",
		"endpoints --categories=": "nothing to measure",
		"endpoints --threads=":    "want a whole number",
		"msgrate --share=":        "nothing to measure",
		"msgrate --features=":     "nothing to measure",
		"dgemm -q --categories=":  "nothing to measure",
		"overlap -q --protocols=": "nothing to measure",
		"ranks -q --test=":        "no tests",
		"sp --protocols=":         "no protocol",
		"instructions --ops=":     "nothing to count",
		"instructions --layers=":  "nothing to count",
		"client -p x":             "--port x: want a whole number\n",
	})
}

// TestMain_Version: the format of other programs.
func TestMain_Version(t *testing.T) {
	for _, args := range []string{"--version", "-v"} {
		code, out, errs := perftest(t, args)
		assert.Equal(t, exitOK, code, errs)
		assert.Regexp(t, `^perftest of gucx `+regexp.QuoteMeta(ucp.Version)+`, commit \S+\n$`, out)
	}
}
