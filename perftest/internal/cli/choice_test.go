package cli

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// jobOf returns the job of a command line.
func jobOf(t *testing.T, args string) (*job, error) { return parsedSettings(t, args).job() }

// parsedSettings returns the settings of flags.
func parsedSettings(t *testing.T, args string) *settings {
	s := &settings{}
	f := pflag.NewFlagSet("perftest", pflag.ContinueOnError)
	s.bind(f)
	s.bindLocal(f)
	require.NoError(t, f.Parse(strings.Fields(args)))
	return s
}

// TestJob_FlagBeatsEnvironmentBeatsDefault checks the choice of transport and device.
func TestJob_FlagBeatsEnvironmentBeatsDefault(t *testing.T) {
	for _, c := range []struct {
		name, env, args string
		transport       string
		remark          string // empty for none
	}{
		{"default", "", "", "rc", ""},
		{"flag", "", "-x tcp", "tcp", ""},
		{"environment", "GUCX_TLS=tcp", "", "tcp", "measuring tcp on lo, by GUCX_TLS=tcp"},
		{"the default is one of several", "GUCX_TLS=ib", "", "rc", "measuring rc on softhca0:1, by GUCX_TLS=ib"},
		{"one between processes is preferred", "GUCX_TLS=self,tcp", "", "tcp", "measuring tcp"},
		{"self if it is the only one", "GUCX_TLS=self", "", "self", "measuring self"},
		{"all but", "GUCX_TLS=^ib", "", "sm", "measuring sm"},
		{"device", "GUCX_NET_DEVICES=lo", "-x tcp", "tcp", ""},
		{"device without a transport", "GUCX_NET_DEVICES=lo", "", "sm", "measuring sm on memory, by GUCX_NET_DEVICES=lo"},
		{"flag names one of them", "GUCX_TLS=tcp,sm", "-x sm", "sm", ""},
		{"flag names another", "GUCX_TLS=tcp", "-x sm", "sm", "-x sm overrides GUCX_TLS=tcp"},
		{"flag overrides a missing one", "GUCX_TLS=dc", "-x sm", "sm", "-x sm overrides GUCX_TLS=dc"},
		{"device by flag", "GUCX_TLS=tcp", "-d softhca0", "rc", "overrides GUCX_TLS=tcp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			j, err := jobOf(t, c.args+" --layers ucp")
			require.NoError(t, err)
			assert.Equal(t, c.transport, j.plan.Transport)
			assert.Equal(t, c.transport, j.transport.Resource.Transport)
			if c.remark == "" {
				assert.Empty(t, j.remarks)
				return
			}
			require.Len(t, j.remarks, 1)
			assert.Contains(t, j.remarks[0], c.remark)
		})
	}
}

func TestJob_EnvironmentExcludesAllTransports(t *testing.T) {
	for value, want := range map[string]string{"dc": "transport dc not found", "^sm,ib,self,tcp": "no transport is left"} {
		t.Setenv("GUCX_TLS", value)
		_, err := jobOf(t, "")
		assert.Equal(t, exitUsage, exitCode(err))
		assert.ErrorContains(t, err, want)
	}
}

func TestJob_RemarksOnUnusedOptions(t *testing.T) {
	for _, c := range []struct{ args, err, remark string }{
		{"-D zcopy --layers ucp", "-D zcopy is for the uct layer", ""},
		{"-D zcopy --layers verbs,ucp", "-D zcopy is for the uct layer", ""},
		{"-D zcopy --layers uct,ucp", "", "-D zcopy is for uct; the other layers choose by size"},
		{"-D zcopy -t fadd_lat,flush", "there are no variants of fadd_lat, flush", ""},
		{"-D zcopy -t put_lat,flush", "", "-D zcopy has no effect on flush"},
		{"-D zcopy -t all", "", ""},
		{"-D zcopy", "", ""},
		{"-D iov --layers uct -t am_lat", "-D iov is for the ucp layer", ""},
		{"-D iov,generic --layers uct,ucp -t am_lat", "", "-D iov,generic is for ucp; the other layers send messages in one piece"},
		{"-D generic -t put_lat,stream_bw", "there are no layouts of put_lat, stream_bw", ""},
		{"-D iov -t put_lat,tag_bw", "", "-D iov has no effect on put_lat"},
		{"-D iov -t tag_lat", "", ""},
		{"-D contig", "", ""},
		{"-x sm --layers verbs", "--layers verbs: sm is not over a verbs device", ""},
		{"-x sm --layers verbs,ucp", "", ""},
		{"-x sm -f loop", "", "-f loop has no effect on sm"},
		{"-x rc -f loop", "", ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			j, err := jobOf(t, c.args)
			if c.err != "" {
				assert.Equal(t, exitUsage, exitCode(err))
				assert.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			if c.remark == "" {
				assert.Empty(t, j.remarks)
				return
			}
			require.Len(t, j.remarks, 1)
			assert.Contains(t, j.remarks[0], c.remark)
		})
	}
}

// TestJob_NamedLayers: verbs is measured on a verbs device only.
func TestJob_NamedLayers(t *testing.T) {
	for args, want := range map[string][]string{
		"-x sm --layers ucp,verbs": {"ucp"},
		"-x rc --layers ucp,verbs": {"verbs", "ucp"},
	} {
		j, err := jobOf(t, args)
		require.NoError(t, err)
		assert.Equal(t, want, j.plan.Layers, args)
	}
}

// TestMain_LayerUsesEnvironment runs two processes.
func TestMain_LayerUsesEnvironment(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	t.Setenv("GUCX_TLS", "tcp")
	code, out, errs := perftest(t, with(quick, "-o", "json", "--layers", "ucp", "-t", "put_lat")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, errs, "perftest: measuring tcp on lo, by GUCX_TLS=tcp")
	_, recs := records(t, out)
	require.NotEmpty(t, recs)
	for _, r := range recs {
		assert.Equal(t, "tcp", r.Transport)
	}
}
