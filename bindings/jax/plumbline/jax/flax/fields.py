"""Fields that modules hand on to their parts."""
import dataclasses


def shared_fields(outer, inner, **changes):
    """The fields of the module `outer` that the module class `inner` has too, and `changes`, for its constructor."""
    names = {field.name for field in dataclasses.fields(inner) if field.init} - {"parent", "name"}
    return {field.name: getattr(outer, field.name) for field in dataclasses.fields(outer) if field.name in names} | changes
