//! Lenient, bounded types for documents of registries.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A string, a number, or any other value, whose content is discarded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum LenientScalar {
    Text(String),
    Number(u64),
    #[default]
    Other,
}

impl LenientScalar {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) const fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for LenientScalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = LenientScalar;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("anything")
            }

            fn visit_str<E>(self, text: &str) -> Result<LenientScalar, E> {
                Ok(LenientScalar::Text(text.to_owned()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<LenientScalar, E> {
                Ok(LenientScalar::Number(number))
            }

            fn visit_i64<E>(self, _: i64) -> Result<LenientScalar, E> {
                Ok(LenientScalar::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<LenientScalar, E> {
                Ok(LenientScalar::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<LenientScalar, E> {
                Ok(LenientScalar::Other)
            }

            fn visit_unit<E>(self) -> Result<LenientScalar, E> {
                Ok(LenientScalar::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LenientScalar, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(LenientScalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LenientScalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(LenientScalar::Other)
            }
        }

        deserializer.deserialize_any(ScalarVisitor)
    }
}

/// A list of at most `MAX` elements. Null and missing mean empty, because registries written in Go use all three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LenientList<T, const MAX: usize>(pub(super) Vec<T>);

impl<T, const MAX: usize> Default for LenientList<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for LenientList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
            type Value = LenientList<T, MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of at most {MAX} elements")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(LenientList::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    if elements.len() == MAX {
                        return Err(A::Error::custom(format_args!("more than {MAX} elements")));
                    }
                    elements.push(element);
                }
                Ok(LenientList(elements))
            }
        }

        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

/// The keys of a map of at most `MAX` entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys<const MAX: usize>(pub(super) Vec<String>);

impl<'de, const MAX: usize> Deserialize<'de> for Keys<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeysVisitor<const MAX: usize>;

        impl<'de, const MAX: usize> Visitor<'de> for KeysVisitor<MAX> {
            type Value = Keys<MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a map of at most {MAX} entries")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    if keys.len() == MAX {
                        return Err(A::Error::custom(format_args!("more than {MAX} entries")));
                    }
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }

        deserializer.deserialize_map(KeysVisitor)
    }
}
