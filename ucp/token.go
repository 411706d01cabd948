package ucp

import (
	"fmt"
	"os"
	"strings"

	"github.com/gucx/gucx/ucp/internal/bootstrap"
	"github.com/gucx/gucx/ucs"
)

// token returns the token of the configuration; empty if there is none. ErrInvalidParam for an invalid setting, and if the
// file cannot be read or contains no valid token.
func (c *Config) token() (string, error) {
	token := string(c.AuthToken)
	switch {
	case c.AuthTokenFile == "":
		if err := bootstrap.CheckToken(token); err != nil {
			return "", fmt.Errorf("AUTH_TOKEN: %w", err)
		}
		return token, nil
	case token != "":
		return "", fmt.Errorf("%w: both AUTH_TOKEN and AUTH_TOKEN_FILE are set", ucs.ErrInvalidParam)
	}
	b, err := os.ReadFile(c.AuthTokenFile)
	if err != nil {
		return "", fmt.Errorf("%w: AUTH_TOKEN_FILE: %w", ucs.ErrInvalidParam, err)
	}
	token = strings.TrimSpace(string(b))
	if len(token) < bootstrap.MinTokenLen {
		return "", fmt.Errorf("%w: AUTH_TOKEN_FILE: %s has a token of %d bytes, want %d or more",
			ucs.ErrInvalidParam, c.AuthTokenFile, len(token), bootstrap.MinTokenLen)
	}
	return token, nil
}
