package softhca

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	hca "github.com/gucx/gucx/internal/softhca"
)

// Each field of Config is copied to the field with its name; internal/softhca has two more, for virtual time.
func TestConfig_AllFieldsPassed(t *testing.T) {
	typ := reflect.TypeFor[Config]()
	for field := range typ.Fields() {
		var c Config
		value := reflect.ValueOf(&c).Elem().FieldByIndex(field.Index)
		setNonzero(t, value)
		got := reflect.ValueOf(c.internal()).FieldByName(field.Name)
		require.True(t, got.IsValid(), field.Name)
		assert.Equal(t, value.Interface(), got.Convert(field.Type).Interface(), field.Name)
	}
	assert.Equal(t, typ.NumField()+len([]string{"Timing", "NIC"}), reflect.TypeFor[hca.Config]().NumField())
}

func TestFabric_NamesEqual(t *testing.T) {
	assert.Equal(t, hca.FabricLoop, hca.Fabric(FabricLoop))
	assert.Equal(t, hca.FabricShm, hca.Fabric(FabricShm))
}

// setNonzero sets v to a value that is not the zero value of its type.
func setNonzero(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		setNonzero(t, v.FieldByName("TotalUUARs"))
	default:
		require.Fail(t, "no value for a field of this kind", v.Kind().String())
	}
}
