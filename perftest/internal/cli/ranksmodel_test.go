package cli

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

func TestRanksModel(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	args := strings.Fields("ranks -q --model connectx6 --ranks 4 --nodes 2 -t pingpong,allgather -s 8 --cpi 1,2 -o csv")
	code, out, errs := perftest(t, args...)
	require.Equal(t, exitOK, code, errs)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+2*2*2)
	assert.Equal(t, []string{"pingpong", "8", "4", "2", "1", "rc_mlx5"}, rows[2][:6])
	_, again, _ := perftest(t, args...)
	assert.Equal(t, out, again)
	code, out, errs = perftest(t, strings.Fields("ranks -q --model connectx6,AckRoundTrip=100000 --ranks 2 -t pingpong -s 8")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "Instructions over rc_mlx5: send ")
	assert.Contains(t, out, " 51.", "50 us in each direction")
}

func TestRanksModel_Refuses(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "counts.csv")
	require.NoError(t, os.WriteFile(wrong, []byte("op,size\n"), 0o600))
	refuses(t, "ranks -q --model connectx6", map[string]string{
		"-t barrier":          "in virtual time there are pingpong",
		"--nodes 9":           "9 nodes for 8 ranks",
		"--nodes 0":           "0 nodes",
		"--ranks 300":         "2 to 256",
		"--cpi 0":             "cycles per instruction",
		"--clock 0":           "a clock of 0",
		"-x tcp":              "over tcp is not counted",
		"--protocols eager":   "--protocols cannot be used with --model",
		"--in-process":        "--in-process cannot be used with --model",
		"-w 3":                "--warmup cannot be used with --model",
		"-o osu":              "osu",
		"--counts " + wrong:   "no column",
		"--counts /not/there": "no such file",
	})
	refuses(t, "ranks -q", map[string]string{
		"--model none": "there are connectx4",
		"--nodes 2":    "--nodes cannot be used without --model",
		"--cpi 2":      "--cpi cannot be used without --model",
		"--seed 2":     "--seed cannot be used without --model",
	})
}
